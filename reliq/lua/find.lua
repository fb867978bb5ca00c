-- find: read one message of a sorted set by its id, without the part of its body that is not shown.
--
-- KEYS  zset, index
--       zset: dead or delayed
-- ARGV  id, skip: number, shown: number, most_bytes: number
--       skip: messages of its score to skip
--       shown: bytes of the body; -1 = all of it
--       most_bytes: after which it stops searching
-- Returns {score, glimpse's number, glimpse}; nil if there is no such message; how many messages to skip in the next call
-- uses: element, glimpse
-- names of the keys and arguments (tools/generate_scripts.py)
local zset, index = KEYS[1], KEYS[2]
local id, skip, shown, most_bytes = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])
-- end of the names
local score = redis.call('HGET', index, id)
if not score then return false end
local first, bytes = redis.call('ZCOUNT', zset, '-inf', '(' .. score), 0

local function look(place)
  local element = redis.call('ZRANGE', zset, place, place)[1]
  bytes = bytes + #element
  if id_of(element) ~= id then return nil end
  if shown < 0 then return {score, 0, element} end
  local part, size = glimpse(element, shown)
  return {score, size, part}
end

local answer = false
for at = skip, redis.call('ZCOUNT', zset, score, score) - 1 do
  answer = look(first + at) or bytes >= most_bytes and at + 1
  if answer then break end
end
forget_read(bytes)
return answer
