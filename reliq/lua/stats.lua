-- stats: the state of a queue at one instant. A script, because a full Redis refuses even reads inside a MULTI.
--
-- KEYS  places, delayed, dead, prepared, flow, ticks, consumers, received, parked, lists...
--       lists: processing lists
-- ARGV  none
-- Returns {now, ready, waiting (ready messages that wait for their key), delayed, dead, processing, prepared, parked,
--         paused (1 or 0), length of `high`, length of `low`, members of the cycle, the next message of each priority that has
--         one, without most of its body, ms for which the first delayed message has been due, the limit that gives out nothing now
--         ('' | 'held' | 'breaker' | 'rate' | 'concurrency'), state of the breaker, schedules with a next tick, ms at which
--         the first of these ticks is due, max_length (nil without one), the consumers that there are, or how many if they are
--         more than 1,000, counter, value ...}
-- uses: now, element, bodies, rounds, lanes, partition, homes, follow, place, glimpse, flow
-- names of the keys and arguments (tools/generate_scripts.py)
local delayed, dead, prepared, flow, ticks, consumers = KEYS[14], KEYS[15], KEYS[16], KEYS[17], KEYS[18], KEYS[19]
local received, parked = KEYS[20], KEYS[21]
local PLACES, LISTS = 1, 22
-- end of the names
local MOST_CONSUMERS = 1000 -- that are named
local BLANKS = 200 -- places of cancelled messages that are looked at
local q = places(PLACES)
redis.call('HLEN', flow) -- a wrong type is refused
local processing = redis.call('ZCARD', received)
for at = LISTS, #KEYS do processing = processing + redis.call('LLEN', KEYS[at]) end
local waiting = redis.call('ZCARD', q.waiting)
local high, low = redis.call('LLEN', q.high), redis.call('LLEN', q.low)
local now, overdue, next_ones, bytes = now_ms(), 0, {}, 0

-- The message of a list that is taken next, behind the places of cancelled ones; nil if there is none among the first.
local function next_of(list)
  for place = 1, BLANKS do
    local element = redis.call('LINDEX', list, -place)
    if element ~= BLANK then return element end
  end
end

local function add_next(element)
  if not element then return end
  next_ones[#next_ones + 1] = glimpse(element, 0)
  bytes = bytes + #element
end

local function overdue_since(first)
  bytes = bytes + #first[1]
  return string.format('%.0f', now - first[2])
end

for _, list in ipairs({q.high, q.messages, q.low}) do add_next(next_of(list)) end
if redis.call('ZCOUNT', delayed, '-inf', string.format('%.0f', now)) > 0 then -- else it need not be read: it may be large
  overdue = overdue_since(redis.call('ZRANGE', delayed, 0, 0, 'WITHSCORES'))
end
local limited_by, breaker = '', 'closed'
local limited, rate, burst, concurrency, max_length, weighted =
  unpack(redis.call('HMGET', q.config, 'limited', 'rate', 'burst', 'concurrency', 'max_length', 'weighted'))
if limited then
  local state, bucket, exact_now = limits_state(flow), bucket_of(rate, burst), exact_now_ms()
  local most = concurrency ~= '0' and tonumber(concurrency) -- 0: a closed partition with nothing to give out
  local _, reason = within_limits(1, bucket, most, processing, state, exact_now)
  local first = weighted and bucket and next_of(q.messages)
  local has_too_few = first and tokens_in(bucket, state.full_at, exact_now) < math.min(cost_of(first), bucket.most)
  limited_by = reason == '' and has_too_few and 'rate' or reason
  breaker = state.breaker or breaker
end
local scheduled, next_tick = redis.call('ZCARD', ticks), '0'
if scheduled > 0 then next_tick = redis.call('ZRANGE', ticks, 0, 0, 'WITHSCORES')[2] end
forget_read(bytes)
return {
  now,
  math.max(0, redis.call('LLEN', q.messages) + high + low + redis.call('LLEN', q.next_round) - blank_places(q)) + waiting,
  waiting,
  redis.call('ZCARD', delayed),
  redis.call('ZCARD', dead),
  processing,
  redis.call('ZCARD', prepared),
  redis.call('HLEN', parked),
  redis.call('HEXISTS', q.config, 'paused'),
  high,
  low,
  redis.call('HLEN', q.cycle),
  next_ones,
  overdue,
  limited_by,
  breaker,
  scheduled,
  next_tick,
  max_length,
  redis.call(redis.call('SCARD', consumers) > MOST_CONSUMERS and 'SCARD' or 'SMEMBERS', consumers),
  unpack(redis.call('HGETALL', q.counters)),
}
