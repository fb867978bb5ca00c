-- release_lines: let the first message of lines be ready, because the former home of their keys has none any more.
--
-- KEYS  1-13 places
-- ARGV  groups
-- Returns how many became ready
-- uses: now, element, bodies, rounds, lanes, homes, follow, place
local q = places(1)
local count = 0
for _, group in ipairs(ARGV) do
  if redis.call('HEXISTS', q.active, group) == 0 and pass_on(q, group) then count = count + 1 end
end
return count
