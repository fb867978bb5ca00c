-- stage_open: begin a job, or restart it under another run: chunks staged by the earlier run are never committed.
--
-- KEYS  1 job  2 jobs
-- ARGV  1 the job's name  2 run  3 time limit ms, after which a silent job is aborted
-- Returns 'open', or 'committed' | 'done': an earlier run decided the job, and it is not restarted
-- uses: now
local job, jobs = KEYS[1], KEYS[2]
local state = redis.call('HGET', job, 'state')
redis.call('ZCARD', jobs) -- a wrong type is refused here, before the first write
if state == 'committed' or state == 'done' then return state end
local now = now_ms()
redis.call('HSET', job, 'state', 'open', 'run', ARGV[2], 'opened', now, 'staged', 0)
redis.call('PERSIST', job)
redis.call('ZADD', jobs, now + ARGV[3], ARGV[1])
return 'open'
