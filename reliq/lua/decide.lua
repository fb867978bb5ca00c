-- decide: commit, roll back or purge a prepared message. The first decision stands.
--
-- KEYS  1-13 places  14 delayed  15 index  16 producers  17 prepared  18 questions  19 record  20 dedup key, if it has one
-- ARGV  1 producer ('' = none)  2 sequence  3 id  4 decision: committed | rolled_back | purged  5 ms it is remembered
-- Returns {decision, id}: the decision that stands, which may be an earlier one, 'undecided' (the message is a dead letter)
--         or 'unknown'; and the id of the message, for a duplicate that of the first message. {'key', name}: the message
--         has this dedup key, and the call must be repeated with it in KEYS
-- uses: now, element, bodies, index, rounds, lanes, partition, homes, follow, place, producers, prepared_record
local q, delayed, index, producers, prepared, questions, record, dedup = places(1), unpack(KEYS, 14, 20)
local id, decision, remembered = unpack(ARGV, 3, 5)
local now = now_ms()
local state, first, element, delay, key, window, digest = unpack(
  redis.call('HMGET', record, 'state', 'first', 'element', 'delay', 'dedup', 'window', 'digest'))
if not state then return {'unknown', id} end
if state ~= 'prepared' then
  redis.call('HDEL', producers, ARGV[1]) -- a removal first: works when memory is full
  remember(producers, ARGV[1], tonumber(ARGV[2]), now)
  return {state, first or id}
end

local value = false
if decision == 'committed' and key then
  if not dedup then return {'key', key} end
  value = redis.call('GET', dedup)
end
redis.call('ZCARD', delayed) -- wrong types are refused here, before the first write
check_batches(q, {element})
redis.call('HLEN', index)
redis.call('HLEN', producers)
redis.call('ZCARD', prepared)
redis.call('ZCARD', questions)
record_decision(prepared, questions, record, id, decision, remembered)
remember(producers, ARGV[1], tonumber(ARGV[2]), now)
redis.call('HINCRBY', q.counters, decision == 'rolled_back' and 'withdrawn' or decision, 1)
if decision ~= 'committed' then
  delete_bodies(q.bodies, {element})
  return {decision, id}
end

if value then
  local other
  first, other = string.match(value, '^(%S+) ?(.*)$')
  redis.call('HSET', record, 'first', first)
  redis.call('HINCRBY', q.counters, 'withdrawn', 1)
  redis.call('HINCRBY', q.counters, 'deduplicated', 1)
  delete_bodies(q.bodies, {element})
  if other ~= '' and other ~= digest then redis.call('HINCRBY', q.counters, 'dedup_conflicts', 1) end
  return {decision, first}
end
if key then redis.call('SET', dedup, id .. ' ' .. digest, 'PX', window) end
have_entered(q, {element})
if tonumber(delay) > 0 then
  index_add(delayed, index, now + delay, id, element)
else
  enter(q, element)
end
return {decision, id}
