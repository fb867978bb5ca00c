-- discard: delete dead letters, each only if it still exists.
--
-- KEYS  dead, counters, index, bodies
-- ARGV  counter, letters... [element, id, reference]
--       counter: purged_dead | trimmed | forwarded
--       reference: of its body; '' = it is not apart
-- Returns the number deleted
-- names of the keys and arguments (tools/generate_scripts.py)
local dead, counters, index, bodies = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local counter = ARGV[1]
local LETTERS, LETTERS_STEP, ELEMENT, ID, REFERENCE = 2, 3, 0, 1, 2
-- end of the names
for _, hash in ipairs({counters, index, bodies}) do redis.call('HLEN', hash) end -- wrong types are refused here
local removed = 0
for at = LETTERS, #ARGV, LETTERS_STEP do
  if redis.call('ZREM', dead, ARGV[at + ELEMENT]) == 1 then
    redis.call('HDEL', index, ARGV[at + ID])
    if ARGV[at + REFERENCE] ~= '' then redis.call('HDEL', bodies, ARGV[at + REFERENCE]) end
    removed = removed + 1
  end
end
if removed > 0 then redis.call('HINCRBY', counters, counter, removed) end
return removed
