-- ask: queue the check-back question of an overdue prepared message for the workers, or make the message a dead letter.
--
-- KEYS  1 prepared  2 questions  3 record  4 dead  5 index  6 counters
-- ARGV  1 id  2 the dead letter's element ('' = ask)  3 ms the decision is remembered
-- Returns 'asked' | 'dead' | 'no': it is already decided, or another call has asked
-- uses: now, element, index, prepared_record
local prepared, questions, record, dead, index, counters = unpack(KEYS)
local id, letter, remembered = unpack(ARGV)
local now = now_ms()
local due, every = redis.call('ZSCORE', prepared, id), redis.call('HGET', record, 'every')
redis.call('ZCARD', questions) -- wrong types are refused here, before the first write
redis.call('ZCARD', dead)
redis.call('HLEN', index)
redis.call('HLEN', counters)
if not due or tonumber(due) > now then return 'no' end
redis.call('ZREM', prepared, id) -- a removal first: works when memory is full
if not every then return 'no' end -- its record is lost: the audit reports it
if letter ~= '' then
  record_decision(prepared, questions, record, id, 'undecided', remembered)
  index_add(dead, index, now, id, letter)
  redis.call('HINCRBY', counters, 'dead:undecided', 1)
  redis.call('HINCRBY', counters, 'dead_lettered', 1)
  return 'dead'
end
redis.call('ZADD', prepared, now + every, id)
redis.call('ZADD', questions, now, id)
redis.call('HINCRBY', record, 'asks', 1)
return 'asked'
