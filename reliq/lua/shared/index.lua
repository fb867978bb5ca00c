-- The index (id -> score) finds a delayed or dead message without a scan. It is a hint: readers verify what they find.
-- Requires `element`.

-- Milliseconds plus a fraction derived from the id. A million messages due in the same ms spread over 4,000 scores, so
-- that finding one by its score stays cheap.
local function score_of(ms, id)
  local sum = 0
  for _, byte in ipairs({string.byte(id, -4, -1)}) do sum = (sum * 31 + byte) % 4000 end
  return string.format('%.4f', ms + sum / 4001)
end

-- Returns the element of a message in a zset, or nil if it is not there.
local function index_find(zset, index, id)
  local score = redis.call('HGET', index, id)
  if not score then return end
  for _, element in ipairs(redis.call('ZRANGEBYSCORE', zset, score, score)) do
    if id_of(element) == id then return element end
  end
end

-- Remove a message from a zset and from the index. Returns its element, or nil if it is not there.
local function index_take(zset, index, id)
  local element = index_find(zset, index, id)
  if not element then return end
  redis.call('ZREM', zset, element)
  redis.call('HDEL', index, id)
  return element
end

-- Add an element to a zset (delayed or dead) at `ms`, and to the index.
local function index_add(zset, index, ms, id, element)
  local score = score_of(ms, id)
  redis.call('ZADD', zset, score, element)
  redis.call('HSET', index, id, score)
end
