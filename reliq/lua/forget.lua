-- forget: remove a consumer that holds no messages.
--
-- KEYS  1 consumers  2 processing  3 lease  4 trying
-- ARGV  1 consumer  2 '1' = the consumer itself is leaving, '0' = only if its lease is over
-- Returns 1, or 0 if it still holds messages or its lease is valid
-- uses: now
redis.call('SCARD', KEYS[1]) -- wrong types are refused here, before the first write
redis.call('HLEN', KEYS[4])
if redis.call('LLEN', KEYS[2]) > 0 then return 0 end
local deadline = redis.call('GET', KEYS[3])
if ARGV[2] == '0' and deadline and tonumber(deadline) > now_ms() then return 0 end
redis.call('DEL', KEYS[3])
redis.call('SREM', KEYS[1], ARGV[1])
redis.call('HDEL', KEYS[4], ARGV[1])
return 1
