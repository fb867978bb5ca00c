-- stage_apart: as stage, for a part in another cluster slot than the job's record; stage_enlist comes first.
-- The part expires, because the job may have ended meanwhile and then no process would delete it.
--
-- KEYS  staged
-- ARGV  before: number, chunks: number, live_ms
--       before: n chunks that the writer had appended before; chunks: n chunks just now
-- Returns 'ok', also for a call that was carried out before; 'torn': the part does not hold the chunks that its writer appended
-- names of the keys and arguments (tools/generate_scripts.py)
local staged = KEYS[1]
local before, chunks, live_ms = tonumber(ARGV[1]), tonumber(ARGV[2]), ARGV[3]
-- end of the names
local length = redis.call('LLEN', staged)
if length ~= before + chunks then
  redis.call('LTRIM', staged, 0, -1 - chunks)
  return length == before + 2 * chunks and 'ok' or 'torn'
end
redis.call('PEXPIRE', staged, live_ms)
return 'ok'
