-- finish: end an HTTP lease after all its messages were settled, and remember for a while that it was settled.
--
-- KEYS  consumers, processing, lease, settled, workers
-- ARGV  consumer, remembered
--       remembered: ms
-- Returns 1, or 0 if it still holds messages: a late claim brought them, and the monitor returns them when the lease ends
-- Sets `settled` only if the lease still existed. The lease is deleted, so a claim that arrives later moves nothing.
-- names of the keys and arguments (tools/generate_scripts.py)
local consumers, processing, lease, settled, workers = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local consumer, remembered = ARGV[1], ARGV[2]
-- end of the names
redis.call('SCARD', consumers) -- wrong types are refused here, before the first write
redis.call('STRLEN', lease)
redis.call('STRLEN', settled)
redis.call('HLEN', workers)
if redis.call('LLEN', processing) > 0 then return 0 end
local lived = redis.call('DEL', lease) == 1
redis.call('SREM', consumers, consumer)
redis.call('HDEL', workers, consumer)
if lived then redis.call('SET', settled, '1', 'PX', remembered) end
return 1
