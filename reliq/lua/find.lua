-- find: read one message of a sorted set by its id, without the part of its body that is not shown.
--
-- KEYS  1 dead, or delayed  2 index
-- ARGV  1 id  2 messages of its score to skip  3 bytes of the body, or -1 = all of it  4 bytes after which it stops searching
-- Returns {score, glimpse's number, glimpse}; nil if there is no such message; how many messages to skip in the next call
-- uses: element, glimpse
local id, skip, shown = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])
local score = redis.call('HGET', KEYS[2], id)
if not score then return false end
local first, bytes = redis.call('ZCOUNT', KEYS[1], '-inf', '(' .. score), 0

local function look(place)
  local element = redis.call('ZRANGE', KEYS[1], place, place)[1]
  bytes = bytes + #element
  if id_of(element) ~= id then return nil end
  if shown < 0 then return {score, 0, element} end
  local part, size = glimpse(element, shown)
  return {score, size, part}
end

local answer = false
for at = skip, redis.call('ZCOUNT', KEYS[1], score, score) - 1 do
  answer = look(first + at) or bytes >= tonumber(ARGV[4]) and at + 1
  if answer then break end
end
forget_read(bytes)
return answer
