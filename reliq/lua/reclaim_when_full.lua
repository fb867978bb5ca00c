-- reclaim_when_full: take back the messages of a dead consumer when memory is full. Does the same as the monitor's transaction, but
-- removes first: over maxmemory Redis refuses a MULTI that contains an LPUSH.
--
-- KEYS  places, processing, lease, dead, index, slots
-- ARGV  deadline, messages... [element, destination, counter, id, again]
--       deadline: that the monitor saw; '' = none
--       destination: ready | dead
--       counter: '' = none
--       again: the new element
-- Returns the number of messages taken back, or -1 if the lease was renewed meanwhile
-- uses: now, element, bodies, index, letters, rounds, lanes, partition, homes, follow, place, holders
-- names of the keys and arguments (tools/generate_scripts.py)
local processing, lease, dead, index = KEYS[14], KEYS[15], KEYS[16], KEYS[17]
local deadline = ARGV[1]
local PLACES, SLOTS, MESSAGES, MESSAGES_STEP, ELEMENT, DESTINATION, COUNTER, ID, AGAIN = 1, 18, 2, 5, 0, 1, 2, 3, 4
-- end of the names
local q, slots = places(PLACES), named_slots(SLOTS)
if (redis.call('GET', lease) or '') ~= deadline then return -1 end
redis.call('LLEN', processing) -- wrong types are refused here, before the first write
redis.call('ZCARD', dead)
check_slots(q, slots)
redis.call('HLEN', index)
local now, taken = now_ms(), 0
for at = MESSAGES, #ARGV, MESSAGES_STEP do
  local element, counter, again = ARGV[at + ELEMENT], ARGV[at + COUNTER], ARGV[at + AGAIN]
  if redis.call('LREM', processing, -1, element) == 1 then
    taken = taken + 1
    if ARGV[at + DESTINATION] == 'ready' then
      redis.call('LPUSH', q.messages, again)
    else
      index_add(dead, index, now, letter_field(ARGV[at + ID]), again)
      redis.call('HINCRBY', q.counters, 'dead_lettered', 1)
      has_died(q, element, counter)
      release_key(q, element)
    end
    if counter ~= '' then redis.call('HINCRBY', q.counters, counter, 1) end
  end
end
note_held(q, slots, processing)
redis.call('DEL', lease)
return taken
