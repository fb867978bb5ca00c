-- stage_clear: delete parts of a decided job; when the last one is deleted, the job ends.
--
-- KEYS  job, jobs, parts, ended, lists...
--       lists: staged lists of those parts that lie with the job
-- ARGV  name, run, remembered, names...
--       name: the job's
--       remembered: ms for which an abort is
--       names: of parts; those in other slots are deleted already
-- Returns the number of parts left, or -1: the job is open, or belongs to another run
-- A committed job that has said what it has written is put at the head of the list of ended jobs, which has the latest 100.
-- A caller must have rolled a committed job forward completely: its approved parts are empty.
-- uses: now
-- names of the keys and arguments (tools/generate_scripts.py)
local job, jobs, parts, ended = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local name, run, remembered = ARGV[1], ARGV[2], ARGV[3]
local LISTS, NAMES = 5, 4
-- end of the names
local state, current, remember = unpack(redis.call('HMGET', job, 'state', 'run', 'remember'))
redis.call('ZCARD', jobs) -- wrong types are refused here, before the first write
redis.call('SCARD', parts)
redis.call('LLEN', ended)
for at = LISTS, #KEYS do redis.call('LLEN', KEYS[at]) end
if state == 'open' or (current or '') ~= run then return -1 end
for at = LISTS, #KEYS do redis.call('UNLINK', KEYS[at]) end
for at = NAMES, #ARGV do redis.call('SREM', parts, ARGV[at]) end
local left = redis.call('SCARD', parts)
if left > 0 then return left end
redis.call('ZREM', jobs, name)
if state == 'committed' then
  redis.call('HDEL', job, 'manifest')
  redis.call('HSET', job, 'state', 'done')
  local opened, committed, about = unpack(redis.call('HMGET', job, 'opened', 'committed', 'about'))
  if about then
    local duplicates, fields = {}, redis.call('HGETALL', job)
    for at = 1, #fields, 2 do
      local queue = string.match(fields[at], '^deduplicated (.+)$')
      if queue then duplicates[#duplicates + 1] = string.format('"%s":%s', queue, fields[at + 1]) end
    end
    redis.call('LPUSH', ended, string.format(
      '{"name":"%s","opened":%s,"committed":%s,"ended":%.0f,"deduplicated":{%s},"about":%s}',
      name, opened or 0, committed, now_ms(), table.concat(duplicates, ','), about))
    redis.call('LTRIM', ended, 0, 99)
  end
end
redis.call('PEXPIRE', job, remember or remembered)
return 0
