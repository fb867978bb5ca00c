-- The index (id -> score) finds a delayed or dead message without a scan. It is a hint: readers verify what they find. Those
-- of dead letters are in `letters`.
-- Requires `now` and `element`.

local SCORES = 4096 -- doubles within one ms of this century
local added = 0 -- messages, by this call

-- Milliseconds, and a fraction by which messages of one ms keep the order in which they were added: three quarters are the
-- microsecond of the call, the rest counts its messages, none of which takes less than a third of a microsecond. Finding
-- one by its score stays cheap, as few have the same.
local function score_of(ms)
  added = added + 1
  return string.format('%.6f', ms + math.min(0.999, 0.75 * part_of_ms + added / SCORES))
end

-- Returns the element of a message in `delayed`, or nil if it is not there.
local function index_find(zset, index, id)
  local score = redis.call('HGET', index, id)
  if not score then return end
  for _, element in ipairs(redis.call('ZRANGEBYSCORE', zset, score, score)) do
    if id_of(element) == id then return element end
  end
end

-- Remove a message from `delayed` and from the index. Returns its element, or nil if it is not there.
local function index_take(zset, index, id)
  local element = index_find(zset, index, id)
  if not element then return end
  redis.call('ZREM', zset, element)
  redis.call('HDEL', index, id)
  return element
end

-- Add an element to a zset (delayed or dead) at `ms`, and to the index. `field`: the id, or `letter_field` of a dead letter's.
local function index_add(zset, index, ms, field, element)
  local score = score_of(ms)
  redis.call('ZADD', zset, score, element)
  redis.call('HSET', index, field, score)
end
