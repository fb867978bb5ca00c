-- ask: queue the check-back question of an overdue prepared message for the workers, or make the message a dead letter.
--
-- KEYS  places, prepared, questions, record, dead, index
-- ARGV  id, letter, remembered
--       letter: the dead letter's element; '' = ask
--       remembered: ms for which the decision is
-- Returns 'asked' | 'dead' | 'no': it is already decided, or another call has asked
-- uses: now, element, bodies, index, letters, rounds, lanes, partition, homes, follow, place, prepared_record
-- names of the keys and arguments (tools/generate_scripts.py)
local prepared, questions, record, dead, index = KEYS[14], KEYS[15], KEYS[16], KEYS[17], KEYS[18]
local id, letter, remembered = ARGV[1], ARGV[2], ARGV[3]
local PLACES = 1
-- end of the names
local q = places(PLACES)
local now = now_ms()
local due, every = redis.call('ZSCORE', prepared, id), redis.call('HGET', record, 'every')
redis.call('ZCARD', questions) -- wrong types are refused here, before the first write
redis.call('ZCARD', dead)
redis.call('HLEN', index)
if letter ~= '' then check_entering(q, {letter}) end
if not due or tonumber(due) > now then return 'no' end
redis.call('ZREM', prepared, id) -- a removal first: works when memory is full
if not every then return 'no' end -- its record is lost: the audit reports it
if letter ~= '' then
  record_decision(prepared, questions, record, id, 'undecided', remembered)
  have_entered(q, {letter}) -- it was in no place before: its history begins here, as that of any dead letter
  index_add(dead, index, now, letter_field(id), letter)
  has_died(q, letter, 'dead:undecided')
  redis.call('HINCRBY', q.counters, 'dead:undecided', 1)
  redis.call('HINCRBY', q.counters, 'dead_lettered', 1)
  return 'dead'
end
redis.call('ZADD', prepared, now + every, id)
redis.call('ZADD', questions, now, id)
redis.call('HINCRBY', record, 'asks', 1)
return 'asked'
