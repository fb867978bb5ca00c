-- park: put a message into `parked`, where it waits for a signal; its run is over, and nothing is counted against it.
--
-- KEYS  places, parked, waits, told, lease, processing, slots
-- ARGV  id, name, position, sent, signal, timeout, again, frees: flag, uncounted: flag
--       name, position, sent, frees, uncounted: as for sleep
--       signal: its name
--       timeout: ms for which it waits at most; '' = for ever
--       again: the new element
-- Returns {'ok'}; {'lost'} and {'other'} as record; {'cancelled'} as sleep; {'given', value}: the signal is there, and the message
--         stays
-- uses: now, element, bodies, rounds, lanes, partition, homes, follow, place, holders, held, records, entries, signals, arriving, timeouts, parting
-- names of the keys and arguments (tools/generate_scripts.py)
local parked, waits, told, lease, processing = KEYS[14], KEYS[15], KEYS[16], KEYS[17], KEYS[18]
local id, name, position, sent, signal, timeout, again = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5], ARGV[6], ARGV[7]
local frees, uncounted = ARGV[8] == '1', ARGV[9] == '1'
local PLACES, SLOTS = 1, 19
-- end of the names
local q, slots = places(PLACES), named_slots(SLOTS)
local now = now_ms()
redis.call('ZCARD', waits) -- wrong types are refused here, before the first write
check_slots(q, slots)
local there = redis.call('HGET', parked, id)
if there and string.sub(there, -#again) == again then return {'ok'} end -- a call that was carried out before
local element = redis.call('STRLEN', lease) > 0 and held_element(processing, name, position)
if not element then return {'lost'} end
local _, owner = read_head(q.followed, id)
if there or is_others(owner, sent) then return {'other'} end
if was_cancelled(told, id, sent) then return {'cancelled'} end
local value = redis.call('HGET', q.followed, signal_field(id, signal))
if value then
  redis.call('ZREM', waits, record_of(id), arriving(id)) -- it came early, and goes with its message from now on
  return {'given', value}
end
part_from(q, slots, processing, element, frees, uncounted)
local at = timeout ~= '' and now + timeout or 0
redis.call('HSET', parked, id, string.format('%.0f %.0f', at, now) .. ' ' .. signal .. '\n' .. again)
redis.call('ZREM', waits, record_of(id), arriving(id))
if at > 0 then add_timeout(waits, at, id) end
note(q, 'parked', element, signal)
redis.call('HINCRBY', q.counters, 'parked', 1)
return {'ok'}
