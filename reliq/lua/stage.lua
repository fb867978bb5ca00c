-- stage: accept the chunks that this transaction has just appended to one part of a job, and the bodies that it has just
-- stored; or remove them again. They stay invisible until the job commits. Begins the job if it is new.
--
-- KEYS  1 job  2 jobs  3 parts  4 staged  5 bodies
-- ARGV  1 the job's name  2 run  3 time limit ms, renewed  4 part
--       5 n chunks that the writer had appended before  6 n chunks just now  7 n messages in these
--       8.. references of the bodies; their elements are in a chunk of this part, of this call or an earlier one.
--       `stage_bodies` has noted which of them this call has stored
-- Returns 'ok', also for a call that was carried out before; 'closed': the job is decided, or belongs to another run;
--         'torn': the part does not hold the chunks that its writer appended
-- Follows the RPUSH in a MULTI, because hashing the chunks as arguments of Lua would take longer than everything else.
-- uses: now
local job, jobs, parts, staged, bodies = unpack(KEYS)
local before, chunks = tonumber(ARGV[5]), tonumber(ARGV[6])
local appended, appended_again = before + chunks, before + 2 * chunks -- the length of the part after this call; a second one

local stored = #ARGV > 7 and redis.pcall('HGET', bodies, '') or ''
if type(stored) ~= 'string' then stored = '' end -- an error: a wrong type
if stored ~= '' then redis.call('HDEL', bodies, '') end

local function drop_chunks() redis.call('LTRIM', staged, 0, -1 - chunks) end -- those of this call, at the end

-- Undo what the transaction has done. `stored` has the references of its bodies, all of one length, in a row.
local function taken_back(answer)
  drop_chunks()
  local length = #(ARGV[8] or ' ')
  for at = 1, #stored, length do redis.call('HDEL', bodies, string.sub(stored, at, at + length - 1)) end
  return answer
end

for _, look in ipairs({{'HLEN', job}, {'ZCARD', jobs}, {'SCARD', parts}, {'HLEN', bodies}}) do
  local found = redis.pcall(unpack(look))
  if type(found) == 'table' then return taken_back(found) end -- an error: a wrong type
end
local state, run = unpack(redis.call('HMGET', job, 'state', 'run'))
local length = redis.call('LLEN', staged)
if state and (state ~= 'open' or run ~= ARGV[2]) then return taken_back('closed') end
if state and chunks > 0 and length == appended_again then
  drop_chunks()
  return 'ok'
end
if length ~= appended or (before > 0 and not state) then return taken_back('torn') end
local now = now_ms()
redis.call('HSET', job, 'state', 'open', 'run', ARGV[2])
redis.call('HSETNX', job, 'opened', now)
redis.call('HINCRBY', job, 'staged', ARGV[7])
redis.call('ZADD', jobs, now + ARGV[3], ARGV[1])
redis.call('SADD', parts, ARGV[4])
return 'ok'
