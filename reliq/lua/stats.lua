-- stats: a queue at one instant. A script and not a MULTI: a full Redis refuses even reads between MULTI and EXEC.
--
-- KEYS  1 messages  2 delayed  3 dead  4 counters  5 config  6.. processing lists
-- ARGV  none
-- Returns {now, ready, delayed, dead, processing, paused (1 or 0), the next message or false, counter, value ...}
-- uses: now
local processing = 0
for at = 6, #KEYS do processing = processing + redis.call('LLEN', KEYS[at]) end
return {
  now_ms(),
  redis.call('LLEN', KEYS[1]),
  redis.call('ZCARD', KEYS[2]),
  redis.call('ZCARD', KEYS[3]),
  processing,
  redis.call('HEXISTS', KEYS[5], 'paused'),
  redis.call('LINDEX', KEYS[1], -1),
  unpack(redis.call('HGETALL', KEYS[4])),
}
