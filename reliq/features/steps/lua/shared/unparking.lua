-- Parked messages, by id: behind when they stop waiting (0: never), since when they wait, and for which signal. Requires `place` and
-- `records`.

-- Returns the name of the signal that a parked message waits for, and its element; nil if it is not parked.
local function parked_message(parked, id)
  local there = redis.call('HGET', parked, id)
  if there then return string.match(there, '^%d+ %d+ ([^\n]+)\n(.*)$') end
end

-- Take a parked message out of its place.
local function unpark(parked, waits, id)
  redis.call('HDEL', parked, id)
  redis.call('ZREM', waits, id)
end
