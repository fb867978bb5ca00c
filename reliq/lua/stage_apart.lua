-- stage_apart: as stage, for a part in another cluster slot than the job's record; stage_enlist comes first.
-- The part expires, because the job may have ended meanwhile and then no process would delete it.
--
-- KEYS  1 staged
-- ARGV  1 n chunks that the writer had appended before  2 n chunks just now  3 ms to live
-- Returns 'ok', also for a call that was carried out before; 'torn': the part does not hold the chunks that its writer appended
local staged = KEYS[1]
local before, chunks = tonumber(ARGV[1]), tonumber(ARGV[2])
local length = redis.call('LLEN', staged)
if length ~= before + chunks then
  redis.call('LTRIM', staged, 0, -1 - chunks)
  return length == before + 2 * chunks and 'ok' or 'torn'
end
redis.call('PEXPIRE', staged, ARGV[3])
return 'ok'
