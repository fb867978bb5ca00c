local part_of_ms = 0 -- how much of the ms that now_ms has told was over: from 0 to 1

-- The Redis server's clock in ms: the only clock that decides anything.
local function now_ms()
  local time = redis.call('TIME')
  part_of_ms = time[2] % 1000 / 1000
  return time[1] * 1000 + math.floor(time[2] / 1000)
end
