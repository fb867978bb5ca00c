-- claim: renew the lease, then move up to n messages into the consumer's processing list.
--
-- KEYS  1 messages  2 processing  3 lease  4 counters  5 config
-- ARGV  1 lease ms  2 n
-- Returns {'ok' | 'paused' | 'lost', now, element ...}, oldest first
-- Refuses a paused queue, and a consumer whose lease is gone: its life is over, it must register anew.
-- uses: now, renew, take
local now = now_ms()
if not renew(KEYS[3], now + ARGV[1]) then return {'lost', now} end
if redis.call('HGET', KEYS[5], 'paused') then return {'paused', now} end
return {'ok', now, unpack(take(KEYS[1], KEYS[2], KEYS[4], tonumber(ARGV[2])))}
