-- prepare: store a message that stays invisible until its producer decides.
--
-- KEYS  1-13 places  14 delayed  15 producers  16 prepared  17 record
-- ARGV  1 producer  2 sequence  3 id  4 element  5 delay ms  6 ms until the first check-back question, and between two
--       questions  7 most questions  8 dedup key ('' = none)  9 window ms  10 digest of the body
-- Returns {'ok', now}, also for a call that was carried out before; {'id_in_use', now}: a message with this id is prepared
--         or was decided lately; {'full', now, length, max_length, unit}; {'moved', now}: the partition takes none
-- Prepared messages count against the queue's limits here, because a commit is never refused.
-- uses: now, element, bodies, rounds, lanes, partition, homes, follow, place, room, producers
local q, delayed, producers, prepared, record = places(1), unpack(KEYS, 14, 17)
local producer, sequence, id, element, delay, every, most, dedup, window, digest = unpack(ARGV)
sequence = tonumber(sequence)
local now = now_ms()
if carried_out(producers, producer, sequence) then
  take_back_late(q.bodies)
  return {'ok', now}
end
if redis.call('HLEN', record) > 0 then
  delete_bodies(q.bodies, {element})
  return {'id_in_use', now}
end
if (q.homes or is_partition(q.config)) and is_closed(q.config, redis.call('HGET', q.config, 'retired')) then
  delete_bodies(q.bodies, {element})
  return {'moved', now}
end
local size = function() return size_of(element) end
local length, limit, unit = refused(q, delayed, 1 + redis.call('ZCARD', prepared), size)
if length then
  delete_bodies(q.bodies, {element})
  return {'full', now, length, limit, unit}
end

remember(producers, producer, sequence, now)
redis.call('ZADD', prepared, now + every, id)
redis.call('HSET', record, 'state', 'prepared', 'element', element, 'delay', delay, 'every', every, 'most', most)
if dedup ~= '' then redis.call('HSET', record, 'dedup', dedup, 'window', window, 'digest', digest) end
redis.call('HINCRBY', q.counters, 'prepared', 1)
redis.call('HINCRBY', q.counters, 'enqueued', 1)
return {'ok', now}
