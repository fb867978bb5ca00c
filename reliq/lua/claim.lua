-- claim: renew the lease, then move up to n messages into the consumer's processing list.
--
-- KEYS  1 messages  2 processing  3 lease  4 counters  5 config  6 consumers
-- ARGV  1 lease ms  2 n  3 consumer
-- Returns {'ok' | 'paused' | 'lost', now, element ...}, oldest first
-- Refuses a paused queue, and a consumer whose lease is gone: its life is over, it must register anew. What a late
--         BLMOVE has moved to it would lie where nobody looks: it enters the consumers again, and the monitor finds it.
-- uses: now, renew, take
local now = now_ms()
if not renew(KEYS[3], now + ARGV[1]) then
  if redis.call('LLEN', KEYS[2]) > 0 then redis.call('SADD', KEYS[6], ARGV[3]) end
  return {'lost', now}
end
if redis.call('HGET', KEYS[5], 'paused') then return {'paused', now} end
return {'ok', now, unpack(take(KEYS[1], KEYS[2], KEYS[4], tonumber(ARGV[2])))}
