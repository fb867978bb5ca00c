-- prepare: keep a message where nobody sees it until its producer decides.
--
-- KEYS  1-10 places  11 delayed  12 producers  13 prepared  14 half (its record)
-- ARGV  1 producer  2 sequence  3 id  4 ms until it is asked about, the first time and between two times
--       5 times at most  6.. further fields of the record: element, delay, and with a dedup key: dedup (the key's name),
--       window, digest of the body
-- Returns {'ok', now}, also for a call that was carried out before; {'taken', now}: the id is prepared already;
--         {'full', now, length, max_length, unit}
-- A queue is full for it when what is prepared would fill it: a commit is refused by nobody.
-- uses: now, element, rounds, place, room, producers
local q, delayed, producers, prepared, half = places(1), unpack(KEYS, 11, 14)
local producer, sequence, id = ARGV[1], tonumber(ARGV[2]), ARGV[3]
local now = now_ms()
if carried_out(producers, producer, sequence) then return {'ok', now} end
if redis.call('HLEN', half) > 0 then return {'taken', now} end
local size = function() return #ARGV[7] end
local length, most, unit = refused(q, delayed, 1 + redis.call('ZCARD', prepared), size)
if length then return {'full', now, length, most, unit} end

remember(producers, producer, sequence, now)
redis.call('ZADD', prepared, now + ARGV[4], id)
redis.call('HSET', half, 'state', 'prepared', 'every', ARGV[4], 'most', ARGV[5], unpack(ARGV, 6))
redis.call('HINCRBY', q.counters, 'prepared', 1)
redis.call('HINCRBY', q.counters, 'enqueued', 1)
return {'ok', now}
