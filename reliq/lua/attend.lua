-- attend: note that a monitor is alive, and read which monitors lead: those that came first.
--
-- KEYS  1 until: zset, monitor -> ms at which it counts as gone
--       2 since: zset, monitor -> ms at which it came
-- ARGV  1 monitor, 2 ms until it counts as gone, 3 monitors that lead at most
-- Returns {1 if it was not known, else 0, how many are alive, those that lead ...}
-- uses: now
local AHEAD = 60000 -- ms; a later end was written before the server's clock was set back
local me, now, most = ARGV[1], now_ms(), tonumber(ARGV[3])
local gone = redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', now)
local leading = redis.call('ZRANGE', KEYS[2], 0, most - 1) -- a wrong type is refused here, before the first write
local known = redis.call('ZREM', KEYS[1], me) == 1 -- a removal first: works when memory is full
local counted = #leading >= most
for _, one in ipairs(leading) do counted = counted or one == me end
known = known and counted -- else one of the keys was deleted
for _, one in ipairs(gone) do known = known and one ~= me end
if not known then
  for _, one in ipairs(redis.call('ZRANGEBYSCORE', KEYS[1], now + AHEAD, '+inf')) do gone[#gone + 1] = one end
  gone[#gone + 1] = me
end
for _, one in ipairs(gone) do
  redis.call('ZREM', KEYS[1], one)
  redis.call('ZREM', KEYS[2], one)
end
redis.call('ZADD', KEYS[1], now + ARGV[2], me)
if not known then redis.call('ZADD', KEYS[2], now, me) end
if #gone > 0 then leading = redis.call('ZRANGE', KEYS[2], 0, most - 1) end
return {known and 0 or 1, #leading < most and #leading or redis.call('ZCARD', KEYS[2]), unpack(leading)}
