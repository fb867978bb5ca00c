-- release_lines: let the first message of lines be ready, because the former home of their keys has none any more; of a limit
-- key as many as it has slots.
--
-- KEYS  places
-- ARGV  version: number, groups...
--       version: of the layout that the caller knows
-- Returns how many lines began; none if the partition knows a later layout: their former home may be another one
-- uses: now, element, bodies, rounds, lanes, partition, homes, follow, place
-- names of the keys and arguments (tools/generate_scripts.py)
local version = tonumber(ARGV[1])
local PLACES, GROUPS = 1, 2
-- end of the names
local q = places(PLACES)
local count = 0
if is_behind(q, version) then return 0 end
for at = GROUPS, #ARGV do
  local group = ARGV[at]
  local first = first_in_line(q, group)
  if first and is_laned(element_in_line(first)) then
    fill_slots(q, group, tonumber(redis.call('HGET', q.active, '#' .. group) or 0))
    count = count + 1
  elseif redis.call('HEXISTS', q.active, group) == 0 and pass_on(q, group) then
    count = count + 1
  end
end
return count
