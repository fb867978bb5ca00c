-- unpark_due: make parked messages ready again whose time to wait is over, and forget early signals, and
-- records on their way from another partition, that no message came for.
--
-- KEYS  places, parked, waits
-- ARGV  limit: number
--       limit: messages at most
-- Returns {n that are ready, n that were looked at}
-- uses: now, element, bodies, rounds, lanes, partition, homes, follow, place, records, entries, signals, timeouts, unparking
-- names of the keys and arguments (tools/generate_scripts.py)
local parked, waits = KEYS[14], KEYS[15]
local limit = tonumber(ARGV[1])
local PLACES = 1
-- end of the names
make_parts()
local q = places(PLACES)
local now = now_ms()
redis.call('HLEN', parked) -- wrong types are refused here, before the first write
redis.call('ZREM', waits, '') -- a removal first: a full Redis takes what follows
local due = take_timeouts(waits, now, limit)
local ready = 0
for _, id in ipairs(due) do
  local signal, element = parked_message(parked, id)
  if signal then
    redis.call('HDEL', parked, id)
    if redis.call('HEXISTS', q.followed, signal_field(id, signal)) == 0 then
      write_signal(q.followed, q.config, id, signal, 't')
    end
    put_back(q, element)
    note(q, 'timed_out', element, signal)
    ready = ready + 1
  end
end
local late = redis.call('ZRANGEBYSCORE', waits, '(0', string.format('%.0f', now), 'LIMIT', 0, limit)
for _, expected in ipairs(late) do
  redis.call('ZREM', waits, expected)
  local lines, message = string.match(expected, '^(\n+)(.*)$')
  local count, sent, _, _, head = read_head(q.followed, message)
  local only_early = #lines == 1 and count == 0 and sent == '0'
  if head and head ~= ENDED and (only_early or #lines == 2) then forget_record(q, record_of(message), head) end
end
if ready > 0 then redis.call('HINCRBY', q.counters, 'timed_out', ready) end
return {ready, #due + #late}
