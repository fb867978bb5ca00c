-- stage_apart: as stage, for a part that lies in another slot than its job's record, behind stage_enlist.
-- The job may be over by now, and nobody would remove what is put here then: it has a time to live, until a commit takes it.
--
-- KEYS  1 staged
-- ARGV  1 n chunks the writer had put there before  2 n chunks just now  3 ms to live
-- Returns 'ok', also for a call that was carried out before; 'torn': the part does not hold what its writer put there
local staged = KEYS[1]
local before, chunks = tonumber(ARGV[1]), tonumber(ARGV[2])
local length = redis.call('LLEN', staged)
if length ~= before + chunks then
  redis.call('LTRIM', staged, 0, -1 - chunks)
  return length == before + 2 * chunks and 'ok' or 'torn'
end
redis.call('PEXPIRE', staged, ARGV[3])
return 'ok'
