-- register: add a consumer and give it a lease, before it claims messages.
--
-- KEYS  consumers, lease, trying, workers
-- ARGV  consumer, lease_ms, marks: flag, about?
--       marks: it marks the redelivered message that it is running
--       about: its process, JSON
-- Returns 1
-- uses: now, full
-- names of the keys and arguments (tools/generate_scripts.py)
local consumers, lease, trying, workers = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local consumer, lease_ms, marks, about = ARGV[1], ARGV[2], ARGV[3] == '1', ARGV[4]
-- end of the names
redis.call('SCARD', consumers) -- wrong types are refused here, before the first write
redis.call('STRLEN', lease)
redis.call('HLEN', trying)
redis.call('HLEN', workers)
pass_when_full(trying)
redis.call('SADD', consumers, consumer)
redis.call('SET', lease, now_ms() + lease_ms)
if marks then redis.call('HSET', trying, consumer, '-') end
if about then redis.call('HSET', workers, consumer, about) end
return 1
