-- unpark_due: make parked messages ready again whose time to wait is over, and forget early signals, and
-- records on their way from another partition, that no message came for.
--
-- KEYS  places, parked, waits
-- ARGV  limit
--       limit: messages at most
-- Returns {n that are ready, n that were looked at}
-- uses: now, element, bodies, rounds, lanes, partition, homes, follow, place, records, unparking
-- names of the keys and arguments (tools/generate_scripts.py)
local parked, waits = KEYS[14], KEYS[15]
local limit = ARGV[1]
local PLACES = 1
-- end of the names
local q = places(PLACES)
local now = now_ms()
redis.call('HLEN', parked) -- a wrong type is refused here, before the first write
local due = redis.call('ZRANGEBYSCORE', waits, '-inf', string.format('%.0f', now), 'LIMIT', 0, limit)
local ready = 0
for _, id in ipairs(due) do
  if string.sub(id, 1, 1) == '\n' then
    redis.call('ZREM', waits, id)
    local lines, message = string.match(id, '^(\n+)(.*)$')
    local count, sent, _, _, head = read_head(q.followed, message)
    local only_early = #lines == 1 and count == 0 and sent == '0'
    if head and head ~= ENDED and (only_early or #lines == 2) then forget_record(q, record_of(message), head) end
  else
    local signal, element = parked_message(parked, id)
    unpark(parked, waits, id)
    if signal then
      if redis.call('HEXISTS', q.followed, signal_field(id, signal)) == 0 then
        write_signal(q.followed, q.config, id, signal, 't')
      end
      place(q, element)
      note(q, 'timed_out', element, signal)
      ready = ready + 1
    end
  end
end
if ready > 0 then redis.call('HINCRBY', q.counters, 'timed_out', ready) end
return {ready, #due}
