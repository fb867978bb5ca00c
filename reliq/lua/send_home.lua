-- send_home: remove messages that a monitor has enqueued in the home of their key, another partition of the queue.
--
-- KEYS  places
-- ARGV  members...
--       members: of `waiting`
-- Returns how many were still here
-- uses: now, element, bodies, rounds, lanes, partition, homes, follow, place, strays
-- names of the keys and arguments (tools/generate_scripts.py)
local PLACES, MEMBERS = 1, 1
-- end of the names
local q = places(PLACES)
local gone = take_strays(q, MEMBERS)
have_gone_home(q, gone)
if #gone > 0 then redis.call('HINCRBY', q.counters, 'sent_home', #gone) end
return #gone
