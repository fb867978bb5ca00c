-- send_home: remove messages that a monitor has enqueued in the home of their key, another partition of the queue.
--
-- KEYS  places
-- ARGV  members...
--       members: of `waiting`
-- Returns how many were still here
-- uses: now, element, bodies, rounds, lanes, partition, homes, follow, place
-- names of the keys and arguments (tools/generate_scripts.py)
local PLACES = 1
-- end of the names
local q = places(PLACES)
local gone = {}
for _, member in ipairs(ARGV) do
  if redis.call('ZREM', q.waiting, member) == 1 then gone[#gone + 1] = element_in_line(member) end
end
delete_bodies(q.bodies, gone)
local batches = by_batch(gone)
have_left(q, gone, 'sent_home', true)
for batch, count in pairs(batches) do count_batch(q, batch, -count, -count, 0, 0) end -- counted in their home
if #gone > 0 then redis.call('HINCRBY', q.counters, 'sent_home', #gone) end
return #gone
