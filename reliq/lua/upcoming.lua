-- upcoming: read the messages that a list's tail holds, next one first, without the parts of their bodies that are not shown.
--
-- KEYS  1 messages
-- ARGV  1 messages to skip  2 messages to read at most  3 bytes of each body  4 bytes of elements after which no more is read
-- Returns {glimpse's number, glimpse, ...}
-- uses: glimpse
local skip, limit, shown, most_bytes = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])
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
  if bytes >= most_bytes or not add(redis.call('LINDEX', KEYS[1], -1 - at)) then break end
end
forget_read(bytes)
return answer
