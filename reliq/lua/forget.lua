-- forget: remove a consumer that holds no messages; of an HTTP lease, remember for a while that it was settled.
--
-- KEYS  consumers, processing, lease, trying, workers, settled?
--       settled: of an HTTP lease; it is set only if the lease still existed
-- ARGV  consumer, leaving: flag, remembered
--       leaving: the consumer itself is; else it is removed only if its lease is over
--       remembered: ms for which `settled` is
-- Returns 1, or 0 if it still holds messages or its lease is valid. The lease is deleted, so a claim that arrives later
-- moves nothing.
-- uses: now
-- names of the keys and arguments (tools/generate_scripts.py)
local consumers, processing, lease, trying, workers, settled = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6]
local consumer, leaving, remembered = ARGV[1], ARGV[2] == '1', ARGV[3]
-- end of the names
redis.call('SCARD', consumers) -- wrong types are refused here, before the first write
redis.call('HLEN', trying)
redis.call('HLEN', workers)
if settled then redis.call('STRLEN', settled) end
if redis.call('LLEN', processing) > 0 then return 0 end
local deadline = redis.call('GET', lease)
if not leaving and deadline and tonumber(deadline) > now_ms() then return 0 end
local lived = redis.call('DEL', lease) == 1
redis.call('SREM', consumers, consumer)
redis.call('HDEL', trying, consumer)
redis.call('HDEL', workers, consumer)
if settled and lived then redis.call('SET', settled, '1', 'PX', remembered) end
return 1
