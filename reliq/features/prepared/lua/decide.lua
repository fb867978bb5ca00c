-- decide: commit, roll back or purge a prepared message. The first decision stands.
--
-- KEYS  places, delayed, index, producers, prepared, questions, record, dedup?
--       dedup: the dedup key of the message, if it has one
-- ARGV  producer, sequence: number, id, decision, remembered, elsewhere
--       producer: '' = none
--       decision: committed | rolled_back | purged
--       remembered: ms for which it is
--       elsewhere: what another home of the dedup key knows of the first message; '' = nothing
-- Returns {decision, id}: the decision that stands, which may be an earlier one, 'undecided' (the message is a dead letter)
--         or 'unknown'; and the id of the message, for a duplicate that of the first message. {'key', name, group}: the
--         message has this dedup key, and the call must be repeated with it in KEYS; group: of its ordering key, or ''
-- uses: now, element, bodies, index, rounds, lanes, partition, homes, follow, place, producers, prepared_record, dedup
-- names of the keys and arguments (tools/generate_scripts.py)
local delayed, index, producers, prepared, questions = KEYS[14], KEYS[15], KEYS[16], KEYS[17], KEYS[18]
local record, dedup = KEYS[19], KEYS[20]
local producer, sequence, id, decision, remembered = ARGV[1], tonumber(ARGV[2]), ARGV[3], ARGV[4], ARGV[5]
local elsewhere = ARGV[6]
local PLACES = 1
-- end of the names
local q = places(PLACES)
local now = now_ms()
local state, first, element, delay, key, window, digest = unpack(
  redis.call('HMGET', record, 'state', 'first', 'element', 'delay', 'dedup', 'window', 'digest'))
if not state then return {'unknown', id} end
if state ~= 'prepared' then
  redis.call('HDEL', producers, producer) -- a removal first: works when memory is full
  remember(producers, producer, sequence, now)
  return {state, first or id}
end

local value = false
if decision == 'committed' and key then
  if not dedup then return {'key', key, group_of(element) or ''} end
  value = redis.call('GET', dedup) or (elsewhere ~= '' and elsewhere)
end
redis.call('ZCARD', delayed) -- wrong types are refused here, before the first write
check_entering(q, {element})
redis.call('HLEN', index)
redis.call('HLEN', producers)
redis.call('ZCARD', prepared)
redis.call('ZCARD', questions)
record_decision(prepared, questions, record, id, decision, remembered)
remember(producers, producer, sequence, now)
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
if key then store_dedup(q, dedup, id .. ' ' .. digest, tonumber(window), now) end
have_entered(q, {element})
if tonumber(delay) > 0 then
  index_add(delayed, index, now + delay, id, element)
else
  enter(q, element)
end
return {decision, id}
