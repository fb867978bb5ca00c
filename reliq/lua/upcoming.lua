-- upcoming: read the messages that a list's tail holds, next one first, without the parts of their bodies that are not shown.
--
-- KEYS  list
-- ARGV  skip: number, limit: number, shown: number, most_bytes: number
--       skip: messages to skip
--       limit: messages to read at most
--       shown: bytes of each body
--       most_bytes: of elements, after which no more is read
-- Returns {glimpse's number, glimpse, ...}
-- uses: glimpse
-- names of the keys and arguments (tools/generate_scripts.py)
local list = KEYS[1]
local skip, limit, shown, most_bytes = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])
-- end of the names
local answer, bytes = {}, 0

local function add(element)
  if not element then return false end
  bytes = bytes + #element
  local part, size = glimpse(element, shown)
  answer[#answer + 1] = size
  answer[#answer + 1] = part
  return true
end

for at = skip, skip + limit - 1 do
  if bytes >= most_bytes or not add(redis.call('LINDEX', list, -1 - at)) then break end
end
forget_read(bytes)
return answer
