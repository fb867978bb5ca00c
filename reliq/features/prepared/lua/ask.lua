-- ask: queue the check-back question of an overdue prepared message for the workers, or make the message a dead letter.
--
-- KEYS  prepared, questions, record, dead, index, counters
-- ARGV  id, letter, remembered
--       letter: the dead letter's element; '' = ask
--       remembered: ms for which the decision is
-- Returns 'asked' | 'dead' | 'no': it is already decided, or another call has asked
-- uses: now, element, index, prepared_record
-- names of the keys and arguments (tools/generate_scripts.py)
local prepared, questions, record, dead, index, counters = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6]
local id, letter, remembered = ARGV[1], ARGV[2], ARGV[3]
-- end of the names
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
