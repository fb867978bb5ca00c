-- stage_open: begin a job, or begin it anew under another run: what the run before had staged will never be committed.
--
-- KEYS  1 job  2 jobs
-- ARGV  1 the job's name  2 run  3 time limit ms, after which a silent job is aborted
-- Returns 'open', or 'committed' | 'done': the job was decided by an earlier run and is not begun again
-- uses: now
local job, jobs = KEYS[1], KEYS[2]
local state = redis.call('HGET', job, 'state')
redis.call('ZCARD', jobs) -- a wrong type is refused here, before the first write
if state == 'committed' or state == 'done' then return state end
redis.call('HSET', job, 'state', 'open', 'run', ARGV[2])
redis.call('PERSIST', job)
redis.call('ZADD', jobs, now_ms() + ARGV[3], ARGV[1])
return 'open'
