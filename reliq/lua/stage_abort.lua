-- stage_abort: decide that an open job never becomes visible. stage_clear then removes its staged chunks.
--
-- KEYS  1 job  2 jobs
-- ARGV  1 the job's name  2 run  3 '1' = only if its time limit has passed
-- Returns 1, also if it was aborted before; or 0: it is committed or deleted, belongs to another run, or is within its limit
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
