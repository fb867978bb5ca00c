-- commit: decide that a job's approved parts become visible. From now on any process may roll it forward, none abort it.
--
-- KEYS  job, jobs, latest
--       latest: hash of the epochs of streams, or of the versions of applications
-- ARGV  name, run, manifest, remembered, stream, epoch, messages, about, durability
--       name: the job's
--       manifest: the approved parts
--       remembered: ms for which the outcome is
--       stream: '' = none
--       epoch: of the stream
--       messages: how many, kept with the outcome
--       about: JSON, what the job has written, for the list of ended jobs; '' = none
--       durability: that the commit is to have, kept with the outcome and with the epoch; '' = not known
-- Returns 'committed'; 'already': by an earlier call of this run; 'repeated': the stream has committed this epoch;
--         'closed': the job was aborted, or belongs to another run
-- Removes before it adds: when memory is full, staged messages can still become visible and be consumed.
-- uses: now
-- names of the keys and arguments (tools/generate_scripts.py)
local job, jobs, latest = KEYS[1], KEYS[2], KEYS[3]
local name, run, manifest, remembered, stream, epoch = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5], ARGV[6]
local messages, about, durability = ARGV[7], ARGV[8], ARGV[9]
-- end of the names
local state, current = unpack(redis.call('HMGET', job, 'state', 'run'))
redis.call('ZCARD', jobs) -- wrong types are refused here, before the first write
local last = stream ~= '' and redis.call('HGET', latest, stream)
if current ~= run or state == 'aborted' then return 'closed' end
if state ~= 'open' then return 'already' end
if last and tonumber(epoch) <= tonumber(string.match(last, '^%d+')) then return 'repeated' end
redis.call('HDEL', job, 'state')
redis.call(
  'HSET', job, 'state', 'committed', 'run', run, 'manifest', manifest, 'remember', remembered, 'messages', messages)
redis.call('ZADD', jobs, 0, name)
if durability ~= '' then redis.call('HSET', job, 'durability', durability) end
if about ~= '' then redis.call('HSET', job, 'about', about, 'committed', string.format('%.0f', now_ms())) end
if stream ~= '' then
  redis.call('HSET', latest, stream, string.format('%s %.0f %s', epoch, now_ms(), durability))
end
return 'committed'
