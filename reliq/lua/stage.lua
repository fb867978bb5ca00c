-- stage: add chunks to one part of a job, where nobody sees them until the job commits. Begins a job that is not known.
--
-- KEYS  1 job  2 jobs  3 parts  4 staged
-- ARGV  1 the job's name  2 run  3 time limit ms, renewed  4 part  5 n chunks the writer has put there  6.. chunks
-- Returns 'ok', also for a call that was carried out before; 'closed': the job is decided, or another run has it;
--         'torn': the part does not hold what its writer put there
-- uses: now
local job, jobs, parts, staged = unpack(KEYS)
local before, chunks = tonumber(ARGV[5]), #ARGV - 5
local state, run = unpack(redis.call('HMGET', job, 'state', 'run'))
local length = redis.call('LLEN', staged)
redis.call('SCARD', parts) -- wrong types are refused here, before the first write
redis.call('ZCARD', jobs)
if state and (state ~= 'open' or run ~= ARGV[2]) then return 'closed' end
if length == before + chunks and state then return 'ok' end
if length ~= before or (before > 0 and not state) then return 'torn' end
redis.call('HSET', job, 'state', 'open', 'run', ARGV[2])
redis.call('ZADD', jobs, now_ms() + ARGV[3], ARGV[1])
redis.call('SADD', parts, ARGV[4])
redis.call('RPUSH', staged, unpack(ARGV, 6))
return 'ok'
