-- find: read one message of a sorted set by its id, without the part of its body that is not shown.
--
-- KEYS  zset, index
--       zset: dead or delayed
-- ARGV  id, skip: number, shown: number, most_bytes: number
--       skip: messages of its scores to skip
--       shown: bytes of the body; -1 = all of it
--       most_bytes: after which it stops searching
-- Returns {score, glimpse's number, glimpse}; nil if there is no such message; how many messages to skip in the next call
-- uses: element, letters, glimpse
-- names of the keys and arguments (tools/generate_scripts.py)
local zset, index = KEYS[1], KEYS[2]
local id, skip, shown, most_bytes = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])
-- end of the names
local passed, bytes, answer = 0, 0, false -- passed: messages of the scores before

local function look(place, score)
  local element = redis.call('ZRANGE', zset, place, place)[1]
  bytes = bytes + #element
  if id_of(element) ~= id then return nil end
  if shown < 0 then return {score, 0, element} end
  local part, size = glimpse(element, shown)
  return {score, size, part}
end

-- Look at the messages of one score; returns the answer once there is one.
local function search(score)
  local first, count = redis.call('ZCOUNT', zset, '-inf', '(' .. score), redis.call('ZCOUNT', zset, score, score)
  for place = first + math.max(0, skip - passed), first + count - 1 do
    local found = look(place, score) or bytes >= most_bytes and passed + place - first + 1
    if found then return found end
  end
  passed = passed + count
  return false
end

for _, score in ipairs(redis.call('HMGET', index, unpack(letter_fields(id)))) do
  answer = score and search(score)
  if answer then break end
end
forget_read(bytes)
return answer
