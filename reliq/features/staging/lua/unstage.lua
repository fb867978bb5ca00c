-- unstage: delete the first chunks of a part that never becomes visible, with the bodies of their messages.
--
-- KEYS  staged, bodies
-- ARGV  chunks
--       chunks: to delete at most
-- Returns the number of chunks left
-- A chunk of bodies has them itself (see commit_roll), and one that does not decode has none that could be found.
-- uses: element, bodies
-- names of the keys and arguments (tools/generate_scripts.py)
local staged, bodies = KEYS[1], KEYS[2]
local chunks = ARGV[1]
-- end of the names
redis.call('HLEN', bodies) -- wrong types are refused here, before the first write

local elements = {}
for number = 0, tonumber(chunks) - 1 do
  local chunk = redis.call('LINDEX', staged, number)
  if not chunk then break end
  local kind, count, at = string.match(chunk, '^([*%%])(%d+)\r\n()')
  for place = 1, (tonumber(count) or 0) * (kind == '%' and 2 or 1) do
    local length, start = string.match(chunk, '^%$(%d+)\r\n()', at)
    if not length then break end
    at = start + length + 2
    if kind == '*' or place % 2 == 0 then elements[#elements + 1] = string.sub(chunk, start, start + length - 1) end
  end
end
redis.call('LTRIM', staged, chunks, -1)
delete_bodies(bodies, elements)
return redis.call('LLEN', staged)
