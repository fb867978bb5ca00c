-- claim: renew the lease, then move up to n messages into the consumer's processing list.
--
-- KEYS  1-8 places  9 processing  10 lease  11 consumers
-- ARGV  1 lease ms  2 n  3 consumer
-- Returns {'ok' | 'paused' | 'lost', now, element ...}, oldest first
-- Refuses a paused queue, and a consumer whose lease is gone: its life is over, it must register anew. What a late
--         BLMOVE has moved to it would lie where nobody looks: it enters the consumers again, and the monitor finds it.
-- uses: now, renew, index, place, take
local q, processing, lease, consumers = places(1), KEYS[9], KEYS[10], KEYS[11]
local now = now_ms()
if not renew(lease, now + ARGV[1]) then
  if redis.call('LLEN', processing) > 0 then redis.call('SADD', consumers, ARGV[3]) end
  return {'lost', now}
end
local policy = redis.call('HMGET', q.config, 'paused', 'prioritised', 'cyclic')
if policy[1] then return {'paused', now} end
return {'ok', now, unpack(take(q, processing, consumers, tonumber(ARGV[2]), policy))}
