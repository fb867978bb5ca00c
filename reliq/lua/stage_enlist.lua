-- stage_enlist: record a part in another cluster slot before it is staged, so that the end of the job includes it.
-- Begins the job if it is new.
--
-- KEYS  1 job  2 jobs  3 parts
-- ARGV  1 the job's name  2 run  3 time limit ms, renewed  4 part  5 n messages that will be staged
-- Returns 'ok'; 'closed': the job is decided, or belongs to another run
-- uses: now
local job, jobs, parts = unpack(KEYS)
local state, run = unpack(redis.call('HMGET', job, 'state', 'run'))
redis.call('ZCARD', jobs) -- wrong types are refused here, before the first write
redis.call('SCARD', parts)
if state and (state ~= 'open' or run ~= ARGV[2]) then return 'closed' end
local now = now_ms()
redis.call('HSET', job, 'state', 'open', 'run', ARGV[2])
redis.call('HSETNX', job, 'opened', now)
redis.call('HINCRBY', job, 'staged', ARGV[5])
redis.call('ZADD', jobs, now + ARGV[3], ARGV[1])
redis.call('SADD', parts, ARGV[4])
return 'ok'
