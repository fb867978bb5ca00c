-- forget: remove a consumer that holds no messages.
--
-- KEYS  consumers, processing, lease, trying, workers
-- ARGV  consumer, leaving: flag
--       leaving: the consumer itself is; else it is removed only if its lease is over
-- Returns 1, or 0 if it still holds messages or its lease is valid
-- uses: now
-- names of the keys and arguments (tools/generate_scripts.py)
local consumers, processing, lease, trying, workers = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local consumer, leaving = ARGV[1], ARGV[2] == '1'
-- end of the names
redis.call('SCARD', consumers) -- wrong types are refused here, before the first write
redis.call('HLEN', trying)
redis.call('HLEN', workers)
if redis.call('LLEN', processing) > 0 then return 0 end
local deadline = redis.call('GET', lease)
if not leaving and deadline and tonumber(deadline) > now_ms() then return 0 end
redis.call('DEL', lease)
redis.call('SREM', consumers, consumer)
redis.call('HDEL', trying, consumer)
redis.call('HDEL', workers, consumer)
return 1
