-- finish: end an HTTP lease after all its messages were settled, and remember for a while that it was settled.
--
-- KEYS  1 consumers  2 processing  3 lease  4 settled
-- ARGV  1 consumer  2 ms to remember
-- Returns 1, or 0 if it still holds messages: a late claim brought them, and the monitor returns them when the lease ends
-- Sets `settled` only if the lease still existed. The lease is deleted, so a claim that arrives later moves nothing.
redis.call('SCARD', KEYS[1]) -- wrong types are refused here, before the first write
redis.call('STRLEN', KEYS[3])
redis.call('STRLEN', KEYS[4])
if redis.call('LLEN', KEYS[2]) > 0 then return 0 end
local lived = redis.call('DEL', KEYS[3]) == 1
redis.call('SREM', KEYS[1], ARGV[1])
if lived then redis.call('SET', KEYS[4], '1', 'PX', ARGV[2]) end
return 1
