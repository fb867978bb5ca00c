-- browse: read messages of a sorted set by their scores, without the parts of their bodies that are not shown.
--
-- KEYS  1 dead, or delayed
-- ARGV  1 up or down: the order of the scores  2 lowest and 3 highest score  4 messages to skip  5 messages to read at most
--       6 bytes of each body, or -1 = all of it  7 bytes of elements after which no more is read: Redis reads each whole
-- Returns {1 if there are more, else 0, score, glimpse's number, glimpse, score ...}
-- uses: glimpse
local key, low, high, skip, shown = KEYS[1], ARGV[2], ARGV[3], tonumber(ARGV[4]), tonumber(ARGV[6])
local left = redis.call('ZCOUNT', key, low, high) - skip
local rising = ARGV[1] == 'up'
local from = rising and redis.call('ZCOUNT', key, low, '+inf') or redis.call('ZCOUNT', key, '-inf', high)
local first = redis.call('ZCARD', key) - from + skip

local function at(place)
  if rising then return redis.call('ZRANGE', key, place, place, 'WITHSCORES') end
  return redis.call('ZRANGE', key, place, place, 'REV', 'WITHSCORES')
end

local most, most_bytes = math.min(left, tonumber(ARGV[5])), tonumber(ARGV[7])
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
