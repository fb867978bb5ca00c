-- The index (id -> score) finds a delayed or dead message without a scan. Only a hint: a reader checks what it finds.
-- Needs `element` in front.

-- The ms, and below it a fraction made of the id: a million messages due in one ms then lie at 4,000 scores, so that
-- finding one of them by its score stays cheap.
local function score_of(ms, id)
  local sum = 0
  for _, byte in ipairs({string.byte(id, -4, -1)}) do sum = (sum * 31 + byte) % 4000 end
  return string.format('%.4f', ms + sum / 4001)
end

-- Take the element of a message out of a zset, and its note; nil where it is not there.
local function unfile(zset, index, id)
  local score = redis.call('HGET', index, id)
  if not score then return end
  for _, element in ipairs(redis.call('ZRANGEBYSCORE', zset, score, score)) do
    if id_of(element) == id then
      redis.call('ZREM', zset, element)
      redis.call('HDEL', index, id)
      return element
    end
  end
end

-- Put an element into a zset (delayed or dead) at ms, and note where.
local function file(zset, index, ms, id, element)
  local score = score_of(ms, id)
  redis.call('ZADD', zset, score, element)
  redis.call('HSET', index, id, score)
end
