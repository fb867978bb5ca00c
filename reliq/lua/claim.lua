-- claim: renew the lease, then move up to n messages into the consumer's processing list.
--
-- KEYS  1-10 places  11 processing  12 lease  13 consumers
-- ARGV  1 lease ms  2 n  3 consumer
-- Returns {'ok' | 'paused' | 'lost', now, element ...}, oldest first
-- Refuses a paused queue, and a consumer without a lease, which must register again. If a late BLMOVE has moved messages
--         to such a consumer, the consumer is added to the set again, so that the monitor finds them.
-- uses: now, element, rounds, renew, place, take
local q, processing, lease, consumers = places(1), KEYS[11], KEYS[12], KEYS[13]
local now = now_ms()
redis.call('LLEN', processing) -- wrong types are refused here, before the first write
redis.call('STRLEN', lease)
if not renew(lease, now + ARGV[1]) then
  if redis.call('LLEN', processing) > 0 then redis.call('SADD', consumers, ARGV[3]) end
  return {'lost', now}
end
local policy = redis.call('HMGET', q.config, 'paused', 'prioritised', 'round')
if policy[1] then return {'paused', now} end
return {'ok', now, unpack(take(q, processing, tonumber(ARGV[2]), policy))}
