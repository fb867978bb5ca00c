-- finish: end the life of a lease over HTTP whose messages are all settled, and remember for a while that it ended so.
--
-- KEYS  1 consumers  2 processing  3 lease  4 settled
-- ARGV  1 consumer  2 ms to remember
-- Returns 1, or 0 when it still holds messages: a late claim brought them, and the monitor takes them back with the lease
-- Only what lived has ended so. The lease goes at once: a claim that arrives later finds none, and moves nothing.
redis.call('SCARD', KEYS[1]) -- wrong types are refused here, before the first write
redis.call('STRLEN', KEYS[3])
redis.call('STRLEN', KEYS[4])
if redis.call('LLEN', KEYS[2]) > 0 then return 0 end
local lived = redis.call('DEL', KEYS[3]) == 1
redis.call('SREM', KEYS[1], ARGV[1])
if lived then redis.call('SET', KEYS[4], '1', 'PX', ARGV[2]) end
return 1
