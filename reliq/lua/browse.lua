-- browse: read messages of a sorted set by their scores, without the parts of their bodies that are not shown.
--
-- KEYS  zset
--       zset: dead or delayed
-- ARGV  order, low, high, skip: number, limit: number, shown: number, most_bytes: number
--       order: of the scores, up or down
--       low, high: the lowest and the highest score
--       skip: messages to skip
--       limit: messages to read at most
--       shown: bytes of each body; -1 = all of it
--       most_bytes: of elements, after which no more is read: Redis reads each whole
-- Returns {1 if there are more, else 0, score, glimpse's number, glimpse, score ...}
-- uses: glimpse
-- names of the keys and arguments (tools/generate_scripts.py)
local zset = KEYS[1]
local order, low, high, skip, limit = ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4]), tonumber(ARGV[5])
local shown, most_bytes = tonumber(ARGV[6]), tonumber(ARGV[7])
-- end of the names
local left = redis.call('ZCOUNT', zset, low, high) - skip
local rising = order == 'up'
local from = rising and redis.call('ZCOUNT', zset, low, '+inf') or redis.call('ZCOUNT', zset, '-inf', high)
local first = redis.call('ZCARD', zset) - from + skip

local function at(place)
  if rising then return redis.call('ZRANGE', zset, place, place, 'WITHSCORES') end
  return redis.call('ZRANGE', zset, place, place, 'REV', 'WITHSCORES')
end

local most = math.min(left, limit)
local answer, bytes, count = {0}, 0, 0

local function add(one)
  local part, size = one[1], 0
  bytes, count = bytes + #part, count + 1
  if shown >= 0 then part, size = glimpse(part, shown) end
  answer[#answer + 1] = one[2]
  answer[#answer + 1] = size
  answer[#answer + 1] = part
end

while count < most and bytes < most_bytes do add(at(first + count)) end -- one by one: no size is known before
if count < left then answer[1] = 1 end
forget_read(bytes)
return answer
