-- stage_clear: delete parts of a decided job; when the last one is deleted, the job ends.
--
-- KEYS  1 job  2 jobs  3 parts  4.. staged lists of those parts that lie with the job
-- ARGV  1 the job's name  2 run  3 ms an abort is remembered  4.. parts; those in other slots are deleted already
-- Returns the number of parts left, or -1: the job is open, or belongs to another run
-- A caller must have rolled a committed job forward completely: its approved parts are empty.
local job, jobs, parts = KEYS[1], KEYS[2], KEYS[3]
local state, run, remember = unpack(redis.call('HMGET', job, 'state', 'run', 'remember'))
redis.call('ZCARD', jobs) -- wrong types are refused here, before the first write
redis.call('SCARD', parts)
for at = 4, #KEYS do redis.call('LLEN', KEYS[at]) end
if state == 'open' or (run or '') ~= ARGV[2] then return -1 end
for at = 4, #KEYS do redis.call('UNLINK', KEYS[at]) end
for at = 4, #ARGV do redis.call('SREM', parts, ARGV[at]) end
local left = redis.call('SCARD', parts)
if left > 0 then return left end
redis.call('ZREM', jobs, ARGV[1])
if state == 'committed' then
  redis.call('HDEL', job, 'manifest')
  redis.call('HSET', job, 'state', 'done')
end
redis.call('PEXPIRE', job, remember or ARGV[3])
return 0
