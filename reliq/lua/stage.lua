-- stage: the chunks that this transaction has just put at the end of one part of a job are in order, or taken back.
-- Nobody sees them until the job commits. Begins a job that is not known.
--
-- KEYS  1 job  2 jobs  3 parts  4 staged
-- ARGV  1 the job's name  2 run  3 time limit ms, renewed  4 part  5 n chunks the writer had put there before  6 n chunks just now
-- Returns 'ok', also for a call that was carried out before; 'closed': the job is decided, or another run has it;
--         'torn': the part does not hold what its writer put there
-- Stands behind the RPUSH in a MULTI, because Lua hashes every byte of what it is given, which takes longer than all else.
-- uses: now
local job, jobs, parts, staged = unpack(KEYS)
local before, chunks = tonumber(ARGV[5]), tonumber(ARGV[6])

local function taken_back(answer)
  redis.call('LTRIM', staged, 0, -1 - chunks)
  return answer
end

for _, look in ipairs({{'HLEN', job}, {'ZCARD', jobs}, {'SCARD', parts}}) do
  local found = redis.pcall(unpack(look))
  if type(found) == 'table' then return taken_back(found) end -- an error: a wrong type
end
local state, run = unpack(redis.call('HMGET', job, 'state', 'run'))
local length = redis.call('LLEN', staged)
if state and (state ~= 'open' or run ~= ARGV[2]) then return taken_back('closed') end
if state and length == before + 2 * chunks then return taken_back('ok') end
if length ~= before + chunks or (before > 0 and not state) then return taken_back('torn') end
redis.call('HSET', job, 'state', 'open', 'run', ARGV[2])
redis.call('ZADD', jobs, now_ms() + ARGV[3], ARGV[1])
redis.call('SADD', parts, ARGV[4])
return 'ok'
