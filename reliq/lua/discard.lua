-- discard: delete dead letters, each only if it still exists.
--
-- KEYS  dead, counters, index, bodies, followed, config, history, call?
--       call: has the answer of a call that is repeated
-- ARGV  counter, letters... [element, id, reference]
--       counter: purged_dead | trimmed | forwarded
--       reference: of its body; '' = it is not apart
-- Returns the number deleted
-- uses: now, element, letters, follow, calls
-- names of the keys and arguments (tools/generate_scripts.py)
local dead, counters, index, bodies, followed, config = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6]
local history, call = KEYS[7], KEYS[8]
local counter = ARGV[1]
local LETTERS, LETTERS_STEP, ELEMENT, ID, REFERENCE = 2, 3, 0, 1, 2
-- end of the names
local before = answer_before(call)
if before then return tonumber(before) end
for _, hash in ipairs({counters, index, bodies, followed}) do redis.call('HLEN', hash) end -- wrong types are refused here
redis.call('XLEN', history)
local q = {followed = followed, config = config, history = history}
q.recorded, q.emitted, q.flowing, q.history_for = unpack(redis.call('HMGET', config, 'recorded', 'emitted', 'flowing', 'history'))
local removed = {}
for at = LETTERS, #ARGV, LETTERS_STEP do
  if take_letter(dead, index, ARGV[at + ID], ARGV[at + ELEMENT]) then
    if ARGV[at + REFERENCE] ~= '' then redis.call('HDEL', bodies, ARGV[at + REFERENCE]) end
    removed[#removed + 1] = ARGV[at + ID]
    if counter == 'forwarded' then note(q, counter, ARGV[at + ELEMENT]) end
  end
end
are_discarded(q, removed)
if #removed > 0 then
  redis.call('HINCRBY', counters, counter, #removed)
  answer_with(call, #removed)
end
return #removed
