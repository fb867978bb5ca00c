-- attend: note that a monitor is alive, and read which monitors lead: those that came first.
--
-- KEYS  monitors_until, monitors_since
--       monitors_until: zset, monitor -> ms at which it counts as gone
--       monitors_since: zset, monitor -> ms at which it came
-- ARGV  monitor, lasts, most: number
--       lasts: ms until it counts as gone
--       most: monitors that lead at most
-- Returns {1 if it was not known, else 0, how many are alive, those that lead ...}
-- uses: now
-- names of the keys and arguments (tools/generate_scripts.py)
local monitors_until, monitors_since = KEYS[1], KEYS[2]
local monitor, lasts, most = ARGV[1], ARGV[2], tonumber(ARGV[3])
-- end of the names
local AHEAD = 60000 -- ms; a later end was written before the server's clock was set back
local now = now_ms()
local gone = redis.call('ZRANGEBYSCORE', monitors_until, '-inf', now)
local leading = redis.call('ZRANGE', monitors_since, 0, most - 1) -- a wrong type is refused here, before the first write
local known = redis.call('ZREM', monitors_until, monitor) == 1 -- a removal first: works when memory is full
local counted = #leading >= most
for _, one in ipairs(leading) do counted = counted or one == monitor end
known = known and counted -- else one of the keys was deleted
for _, one in ipairs(gone) do known = known and one ~= monitor end
if not known then
  for _, one in ipairs(redis.call('ZRANGEBYSCORE', monitors_until, now + AHEAD, '+inf')) do gone[#gone + 1] = one end
  gone[#gone + 1] = monitor
end
for _, one in ipairs(gone) do
  redis.call('ZREM', monitors_until, one)
  redis.call('ZREM', monitors_since, one)
end
redis.call('ZADD', monitors_until, now + lasts, monitor)
if not known then redis.call('ZADD', monitors_since, now, monitor) end
if #gone > 0 then leading = redis.call('ZRANGE', monitors_since, 0, most - 1) end
return {known and 0 or 1, #leading < most and #leading or redis.call('ZCARD', monitors_since), unpack(leading)}
