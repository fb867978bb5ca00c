-- stage_abort: decide that an open job never becomes visible. stage_clear then removes its staged chunks.
--
-- KEYS  job, jobs
-- ARGV  name, run, overdue: flag
--       name: the job's
--       overdue: only if its time limit has passed
-- Returns 1, also if it was aborted before; or 0: it is committed or deleted, belongs to another run, or is within its limit
-- uses: now
-- names of the keys and arguments (tools/generate_scripts.py)
local job, jobs = KEYS[1], KEYS[2]
local name, run, overdue = ARGV[1], ARGV[2], ARGV[3] == '1'
-- end of the names
local state, current = unpack(redis.call('HMGET', job, 'state', 'run'))
local limit = redis.call('ZSCORE', jobs, name)
if current ~= run then return 0 end
if state == 'aborted' then return 1 end
if state ~= 'open' then return 0 end
if overdue and limit and tonumber(limit) > now_ms() then return 0 end
redis.call('HDEL', job, 'state')
redis.call('HSET', job, 'state', 'aborted', 'run', run)
redis.call('ZADD', jobs, 0, name)
return 1
