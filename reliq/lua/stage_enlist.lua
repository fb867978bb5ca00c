-- stage_enlist: before a part is staged that lies in another slot than its job's record: whoever ends the job knows of it.
-- Begins a job that is not known.
--
-- KEYS  1 job  2 jobs  3 parts
-- ARGV  1 the job's name  2 run  3 time limit ms, renewed  4 part
-- Returns 'ok'; 'closed': the job is decided, or another run has it
-- uses: now
local job, jobs, parts = unpack(KEYS)
local state, run = unpack(redis.call('HMGET', job, 'state', 'run'))
redis.call('ZCARD', jobs) -- wrong types are refused here, before the first write
redis.call('SCARD', parts)
if state and (state ~= 'open' or run ~= ARGV[2]) then return 'closed' end
redis.call('HSET', job, 'state', 'open', 'run', ARGV[2])
redis.call('ZADD', jobs, now_ms() + ARGV[3], ARGV[1])
redis.call('SADD', parts, ARGV[4])
return 'ok'
