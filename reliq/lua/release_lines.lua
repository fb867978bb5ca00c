-- release_lines: let the first message of lines be ready, because the former home of their keys has none any more; of a limit
-- key as many as it has slots.
--
-- KEYS  1-13 places
-- ARGV  1 version of the layout that the caller knows  2.. groups
-- Returns how many lines began; none if the partition knows a later layout: their former home may be another one
-- uses: now, element, bodies, rounds, lanes, partition, homes, follow, place
local q = places(1)
local count = 0
if is_behind(q, tonumber(ARGV[1])) then return 0 end
for at = 2, #ARGV do
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
