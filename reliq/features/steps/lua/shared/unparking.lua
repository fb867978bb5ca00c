-- Parked messages, by id: behind when they stop waiting (0: never), since when they wait, and for which signal. Requires `place` and
-- `timeouts`.

-- Returns the name of the signal that a parked message waits for, its element, and when it stops waiting; nil if it is not parked.
local function parked_message(parked, id)
  local there = redis.call('HGET', parked, id)
  if not there then return end
  local at, signal, element = string.match(there, '^(%d+) %d+ ([^\n]+)\n(.*)$')
  return signal, element, tonumber(at)
end

-- Take a parked message out of its place.
local function unpark(parked, waits, id, at)
  redis.call('HDEL', parked, id)
  if at > 0 then remove_timeout(waits, at, id) end
end
