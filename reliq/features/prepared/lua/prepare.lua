-- prepare: store a message that stays invisible until its producer decides.
--
-- KEYS  places, delayed, producers, prepared, record
-- ARGV  producer, sequence: number, id, element, delay, every, most, dedup, window, digest
--       delay, window: ms
--       every: ms until the first check-back question, and between two
--       most: questions
--       dedup: its dedup key, '' = none
--       digest: of the body
-- Returns {'ok', now}, also for a call that was carried out before; {'id_in_use', now}: a message with this id is prepared
--         or was decided lately; {'full', now, length, max_length, unit}; {'moved', now}: the partition takes none
-- Prepared messages count against the queue's limits here, because a commit is never refused.
-- uses: now, element, bodies, rounds, lanes, partition, homes, follow, place, room, producers
-- names of the keys and arguments (tools/generate_scripts.py)
local delayed, producers, prepared, record = KEYS[14], KEYS[15], KEYS[16], KEYS[17]
local producer, sequence, id, element, delay, every = ARGV[1], tonumber(ARGV[2]), ARGV[3], ARGV[4], ARGV[5], ARGV[6]
local most, dedup, window, digest = ARGV[7], ARGV[8], ARGV[9], ARGV[10]
local PLACES = 1
-- end of the names
local q = places(PLACES)
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
