-- stay: let messages stay that waited to be taken to another partition: this one is the home of their key again.
--
-- KEYS  places
-- ARGV  version: number, members...
--       version: of the layout that the caller knows
--       members: of `waiting`
-- Returns how many were still here; none if the partition knows a later layout: the home of their key may be another one
-- uses: now, element, bodies, rounds, lanes, partition, homes, follow, place
-- names of the keys and arguments (tools/generate_scripts.py)
local version = tonumber(ARGV[1])
local PLACES, MEMBERS = 1, 2
-- end of the names
local q = places(PLACES)
if is_behind(q, version) then return 0 end
local staying = {}
for at = MEMBERS, #ARGV do
  if redis.call('ZREM', q.waiting, ARGV[at]) == 1 then staying[#staying + 1] = element_in_line(ARGV[at]) end
end
for _, element in ipairs(staying) do enter(q, element) end
return #staying
