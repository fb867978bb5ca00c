-- stage_abort: decide that nothing of an open job ever becomes visible. What it staged is then removed by stage_clear.
--
-- KEYS  1 job  2 jobs
-- ARGV  1 the job's name  2 run  3 '1' = only if its time limit has passed
-- Returns 1, also when it was aborted before; or 0: it is committed or gone, another run has it, its limit has not passed
-- uses: now
local job, jobs = KEYS[1], KEYS[2]
local state, run = unpack(redis.call('HMGET', job, 'state', 'run'))
local limit = redis.call('ZSCORE', jobs, ARGV[1])
if run ~= ARGV[2] then return 0 end
if state == 'aborted' then return 1 end
if state ~= 'open' then return 0 end
if ARGV[3] == '1' and limit and tonumber(limit) > now_ms() then return 0 end
redis.call('HDEL', job, 'state')
redis.call('HSET', job, 'state', 'aborted', 'run', run)
redis.call('ZADD', jobs, 0, ARGV[1])
return 1
