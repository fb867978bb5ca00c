-- signal: give a signal to a message. One that waits for it is ready again; for others it is kept.
--
-- KEYS  places, parked, waits, call?
--       call: has the answer of a call that is repeated
-- ARGV  id, signal, value, early, counted: flag
--       early: ms for which a signal is kept for a message of which nothing is known; '' = it is refused
--       counted: also if it is early: all partitions get it then
-- Returns 'given': the message waited for it
--         'kept', or 'early': 'early' where but for early signals nothing is known of the message, or it is on its way to
--         or from another partition
--         'before', or likewise 'early before': it has had this signal
--         'late': the time to wait for it is over
--         'ended': the message has left the queue
--         'unknown': nothing is known of the message
--         'full': it would be kept, but the queue keeps too many for messages of which nothing is known
--         'many': the message has too many, and does not wait for this one
-- uses: now, element, bodies, rounds, lanes, partition, homes, follow, place, calls, records, entries, signals, arriving, timeouts, unparking
-- names of the keys and arguments (tools/generate_scripts.py)
local parked, waits, call = KEYS[14], KEYS[15], KEYS[16]
local id, signal, value, early, counted = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5] == '1'
local PLACES = 1
-- end of the names
local MOST_EARLY = 100000 -- messages of which nothing is known but early signals; with those that go elsewhere at this moment
local MOST_SIGNALS = 1000 -- of a message
local q = places(PLACES)
local said = answer_before(call)
if said then return said end
local now = now_ms()
redis.call('ZCARD', waits) -- a wrong type is refused here, before the first write
local had = redis.call('HGET', q.followed, signal_field(id, signal))
local is_early = is_expected(waits, id)
if had then return string.sub(had, 1, 1) == 't' and 'late' or is_early and 'early before' or 'before' end
local waited, element, at = parked_message(parked, id)
local _, _, _, names, head = read_head(q.followed, id)
if not waited then
  if head == ENDED then return 'ended' end
  if not head and early == '' then return 'unknown' end
  if not head and redis.call('ZCOUNT', waits, '(0', '+inf') >= MOST_EARLY then return 'full' end
end
if waited ~= signal and select(2, string.gsub(names, '\n', '')) >= MOST_SIGNALS then return 'many' end
if waited == signal then unpark(parked, waits, id, at) end
write_signal(q.followed, q.config, id, signal, value)
if counted or waited or head and not is_early then redis.call('HINCRBY', q.counters, 'signalled', 1) end
if waited == signal then
  put_back(q, element)
  note(q, 'signalled', element, signal)
  return answer_with(call, 'given')
end
if waited or head and not is_early then return answer_with(call, 'kept') end
if not head then redis.call('ZADD', waits, string.format('%.0f', now + early), record_of(id)) end
return answer_with(call, 'early')
