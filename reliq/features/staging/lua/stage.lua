-- stage: accept the chunks that this transaction has just appended to one part of a job, and the bodies that it has just
-- stored; or remove them again. They stay invisible until the job commits. Begins the job if it is new.
--
-- KEYS  job, jobs, parts, staged, stored_bodies
-- ARGV  name, run, limit_ms, part, before: number, chunks: number, messages, references...
--       name: the job's
--       limit_ms: time limit, renewed
--       before: n chunks that the writer had appended before; chunks: n chunks just now; messages: n in these
--       references: of the bodies; their elements are in a chunk of this part, of this call or an earlier one. `stage_bodies`
--       has noted which of them this call has stored
-- Returns 'ok', also for a call that was carried out before; 'closed': the job is decided, or belongs to another run;
--         'torn': the part does not hold the chunks that its writer appended
-- Follows the RPUSH in a MULTI, because hashing the chunks as arguments of Lua would take longer than everything else.
-- uses: now, enlisting
-- names of the keys and arguments (tools/generate_scripts.py)
local job, jobs, parts, staged, stored_bodies = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local name, run, limit_ms, part, before = ARGV[1], ARGV[2], ARGV[3], ARGV[4], tonumber(ARGV[5])
local chunks, messages = tonumber(ARGV[6]), ARGV[7]
local REFERENCES = 8
-- end of the names
local appended, appended_again = before + chunks, before + 2 * chunks -- the length of the part after this call; a second one
local stored = #ARGV >= REFERENCES and redis.pcall('HGET', stored_bodies, '') or ''
if type(stored) ~= 'string' then stored = '' end -- an error: a wrong type
if stored ~= '' then redis.call('HDEL', stored_bodies, '') end

local function drop_chunks() redis.call('LTRIM', staged, 0, -1 - chunks) end -- those of this call, at the end

-- Undo what the transaction has done. `stored` has the references of its bodies, all of one length, in a row.
local function taken_back(answer)
  drop_chunks()
  local size = #(ARGV[REFERENCES] or ' ')
  for at = 1, #stored, size do redis.call('HDEL', stored_bodies, string.sub(stored, at, at + size - 1)) end
  return answer
end

for _, look in ipairs({{'HLEN', job}, {'ZCARD', jobs}, {'SCARD', parts}, {'HLEN', stored_bodies}}) do
  local found = redis.pcall(unpack(look))
  if type(found) == 'table' then return taken_back(found) end -- an error: a wrong type
end
local state, current = unpack(redis.call('HMGET', job, 'state', 'run'))
local length = redis.call('LLEN', staged)
if state and (state ~= 'open' or current ~= run) then return taken_back('closed') end
if state and chunks > 0 and length == appended_again then
  drop_chunks()
  return 'ok'
end
if length ~= appended or (before > 0 and not state) then return taken_back('torn') end
enlist(job, jobs, parts, name, run, limit_ms, part, messages)
return 'ok'
