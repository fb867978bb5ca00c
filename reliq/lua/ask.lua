-- ask: a prepared message is overdue: put the question where workers take it, or give up and make it a dead letter.
--
-- KEYS  1 prepared  2 questions  3 half  4 dead  5 index  6 counters
-- ARGV  1 id  2 the dead letter's element ('' = ask)  3 ms the decision is remembered
-- Returns 'asked' | 'dead' | 'no': it is decided, or was asked about meanwhile
-- uses: now, element, index, half
local prepared, questions, half, dead, index, counters = unpack(KEYS)
local id, letter, remembered = unpack(ARGV)
local now = now_ms()
local due, every = redis.call('ZSCORE', prepared, id), redis.call('HGET', half, 'every')
redis.call('ZCARD', questions) -- wrong types are refused here, before the first write
redis.call('ZCARD', dead)
redis.call('HLEN', index)
redis.call('HLEN', counters)
if not due or tonumber(due) > now then return 'no' end
redis.call('ZREM', prepared, id) -- a removal first: then it passes when memory is full
if not every then return 'no' end -- Redis has lost it: the audit says so
if letter ~= '' then
  decided(prepared, questions, half, id, 'undecided', remembered)
  file(dead, index, now, id, letter)
  redis.call('HINCRBY', counters, 'dead:undecided', 1)
  redis.call('HINCRBY', counters, 'dead_lettered', 1)
  return 'dead'
end
redis.call('ZADD', prepared, now + every, id)
redis.call('ZADD', questions, now, id)
redis.call('HINCRBY', half, 'asks', 1)
return 'asked'
