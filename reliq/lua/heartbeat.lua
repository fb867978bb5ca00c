-- heartbeat: renew a lease if it still exists.
--
-- KEYS  1 lease  2 told
-- ARGV  1 lease ms
-- Returns nil if the lease does not exist: the monitor has taken the consumer's messages back. Otherwise {id, ms, id ...}:
--         messages of the queue that were cancelled while a consumer held them, and when
-- uses: now, renew
redis.call('STRLEN', KEYS[1]) -- wrong types are refused here, before the first write
local told = redis.call('HGETALL', KEYS[2])
return renew(KEYS[1], now_ms() + ARGV[1]) and told
