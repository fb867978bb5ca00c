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
have_gone_home(q, gone)
if #gone > 0 then redis.call('HINCRBY', q.counters, 'sent_home', #gone) end
return #gone
