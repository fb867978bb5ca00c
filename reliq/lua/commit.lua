-- commit: decide that a job's approved parts become visible. From now on any process may roll it forward, none abort it.
--
-- KEYS  1 job  2 jobs  3 epochs
-- ARGV  1 the job's name  2 run  3 manifest (the approved parts)  4 ms the outcome is remembered
--       5 stream ('' = none)  6 epoch of the stream  7 number of messages, kept with the outcome
-- Returns 'committed'; 'already': by an earlier call of this run; 'repeated': the stream has committed this epoch;
--         'closed': the job was aborted, or belongs to another run
-- Removes before it adds: when memory is full, staged messages can still become visible and be consumed.
-- uses: now
local job, jobs, epochs = unpack(KEYS)
local state, run = unpack(redis.call('HMGET', job, 'state', 'run'))
redis.call('ZCARD', jobs) -- wrong types are refused here, before the first write
local last = ARGV[5] ~= '' and redis.call('HGET', epochs, ARGV[5])
if run ~= ARGV[2] or state == 'aborted' then return 'closed' end
if state ~= 'open' then return 'already' end
if last and tonumber(ARGV[6]) <= tonumber(string.match(last, '^%d+')) then return 'repeated' end
redis.call('HDEL', job, 'state')
redis.call('HSET', job, 'state', 'committed', 'run', run, 'manifest', ARGV[3], 'remember', ARGV[4], 'messages', ARGV[7])
redis.call('ZADD', jobs, 0, ARGV[1])
if ARGV[5] ~= '' then redis.call('HSET', epochs, ARGV[5], ARGV[6] .. ' ' .. string.format('%.0f', now_ms())) end
return 'committed'
