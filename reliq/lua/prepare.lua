-- prepare: store a message that stays invisible until its producer decides.
--
-- KEYS  1-10 places  11 delayed  12 producers  13 prepared  14 record
-- ARGV  1 producer  2 sequence  3 id  4 ms until the first check-back question, and between two questions
--       5 most questions  6.. further fields of the record, as names and values: element, delay, and with a dedup key:
--       dedup (the key's name), window, digest of the body
-- Returns {'ok', now}, also for a call that was carried out before; {'id_in_use', now}: a message with this id is prepared
--         or was decided lately; {'full', now, length, max_length, unit}
-- Prepared messages count against the queue's limits here, because a commit is never refused.
-- uses: now, element, rounds, place, room, producers
local q, delayed, producers, prepared, record = places(1), unpack(KEYS, 11, 14)
local producer, sequence, id = ARGV[1], tonumber(ARGV[2]), ARGV[3]
local now = now_ms()
if carried_out(producers, producer, sequence) then return {'ok', now} end
if redis.call('HLEN', record) > 0 then return {'id_in_use', now} end
local size = function() return #ARGV[7] end
local length, most, unit = refused(q, delayed, 1 + redis.call('ZCARD', prepared), size)
if length then return {'full', now, length, most, unit} end

remember(producers, producer, sequence, now)
redis.call('ZADD', prepared, now + ARGV[4], id)
redis.call('HSET', record, 'state', 'prepared', 'every', ARGV[4], 'most', ARGV[5], unpack(ARGV, 6))
redis.call('HINCRBY', q.counters, 'prepared', 1)
redis.call('HINCRBY', q.counters, 'enqueued', 1)
return {'ok', now}
