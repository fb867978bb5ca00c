-- stage_admit: note bytes that a job has just staged; say how long their writer waits, so that all writers of the job
-- together keep to a rate.
--
-- KEYS  job, jobs
-- ARGV  name, run, limit_ms, bytes: number, rate: number
--       name: the job's
--       limit_ms: time limit, which begins after the wait
--       rate: bytes a second
-- Returns ms to wait; 0 also if the job is decided, or belongs to another run
-- uses: now
-- names of the keys and arguments (tools/generate_scripts.py)
local job, jobs = KEYS[1], KEYS[2]
local name, run, limit_ms, bytes, rate = ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4]), tonumber(ARGV[5])
-- end of the names
local state, current, admitted = unpack(redis.call('HMGET', job, 'state', 'run', 'admitted'))
redis.call('ZCARD', jobs) -- a wrong type is refused here, before the first write
if state ~= 'open' or current ~= run then return 0 end
local now = now_ms()
local upto = math.max(now, tonumber(admitted or 0)) + math.ceil(bytes * 1000 / rate)
redis.call('HSET', job, 'admitted', string.format('%.0f', upto))
redis.call('ZADD', jobs, string.format('%.0f', upto + limit_ms), name)
return upto - now
