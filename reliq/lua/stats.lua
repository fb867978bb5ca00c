-- stats: the state of a queue at one instant. A script, because a full Redis refuses even reads inside a MULTI.
--
-- KEYS  1-10 places  11 delayed  12 dead  13 prepared  14.. processing lists
-- ARGV  none
-- Returns {now, ready, waiting (ready messages that wait for their key), delayed, dead, processing, prepared, paused
--         (1 or 0), length of `high`, length of `low`, members of the cycle, the next message of each priority that has
--         one, counter, value ...}
-- uses: now, element, rounds, place
local q = places(1)
local processing = 0
for at = 14, #KEYS do processing = processing + redis.call('LLEN', KEYS[at]) end
local waiting = redis.call('ZCARD', q.waiting)
local high, low = redis.call('LLEN', q.high), redis.call('LLEN', q.low)
local next_ones = {}
for _, list in ipairs({q.high, q.messages, q.low}) do
  next_ones[#next_ones + 1] = redis.call('LINDEX', list, -1) or nil
end
return {
  now_ms(),
  redis.call('LLEN', q.messages) + high + low + redis.call('LLEN', q.next_round) + waiting,
  waiting,
  redis.call('ZCARD', KEYS[11]),
  redis.call('ZCARD', KEYS[12]),
  processing,
  redis.call('ZCARD', KEYS[13]),
  redis.call('HEXISTS', q.config, 'paused'),
  high,
  low,
  redis.call('HLEN', q.cycle),
  next_ones,
  unpack(redis.call('HGETALL', q.counters)),
}
