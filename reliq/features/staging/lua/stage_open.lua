-- stage_open: begin a job, or restart it under another run: chunks staged by the earlier run are never committed.
--
-- KEYS  job, jobs
-- ARGV  name, run, limit_ms
--       name: the job's
--       limit_ms: time limit, after which a silent job is aborted
-- Returns 'open', or 'committed' | 'done': an earlier run decided the job, and it is not restarted
-- uses: now
-- names of the keys and arguments (tools/generate_scripts.py)
local job, jobs = KEYS[1], KEYS[2]
local name, run, limit_ms = ARGV[1], ARGV[2], ARGV[3]
-- end of the names
local state = redis.call('HGET', job, 'state')
redis.call('ZCARD', jobs) -- a wrong type is refused here, before the first write
if state == 'committed' or state == 'done' then return state end
local now = now_ms()
redis.call('HSET', job, 'state', 'open', 'run', run, 'opened', now, 'staged', 0)
redis.call('HDEL', job, 'admitted')
redis.call('PERSIST', job)
redis.call('ZADD', jobs, now + limit_ms, name)
return 'open'
