-- purge: delete ready and delayed messages, a bounded number per call.
--
-- KEYS  places, delayed, index
-- ARGV  limit: number
--       limit: messages to delete at most
-- Returns the number deleted; -1 = only places of cancelled messages were found; 0 = the queue is empty
-- uses: now, element, bodies, rounds, lanes, partition, homes, follow, place
-- names of the keys and arguments (tools/generate_scripts.py)
local delayed, index = KEYS[14], KEYS[15]
local limit = tonumber(ARGV[1])
local PLACES = 1
-- end of the names
local q = places(PLACES)
redis.call('ZCARD', delayed) -- wrong types are refused here, before the first write
redis.call('HLEN', index)
local left, removed = limit, 0

local waiting = redis.call('ZPOPMIN', q.waiting, left) -- first, so that no waiting message becomes ready
left, removed = left - #waiting / 2, removed + #waiting / 2

for at = 1, #waiting, 2 do -- a waiting message does not hold its key
  local element = element_in_line(waiting[at])
  leave_cycle(q, element)
  drop_body(q, element)
  have_left(q, {element}, 'purged')
end
local held, blanks = {}, 0
for _, list in ipairs({q.messages, q.high, q.low, q.next_round}) do
  for _, element in ipairs(left > 0 and redis.call('RPOP', list, left) or {}) do
    left = left - 1
    if element == BLANK then
      blanks = blanks + 1
    else
      held[#held + 1] = element
      removed = removed + 1
    end
  end
end
if blanks > 0 then redis.call('HINCRBY', q.counters, 'blanks_passed', blanks) end

local later = left > 0 and redis.call('ZRANGE', delayed, 0, left - 1) or {}
if #later > 0 then
  local ids = {}
  for at, element in ipairs(later) do
    held[#held + 1] = element
    ids[at] = id_of(element)
  end
  redis.call('ZREM', delayed, unpack(later))
  redis.call('HDEL', index, unpack(ids))
  removed = removed + #later
end

for _, element in ipairs(held) do leave_queue(q, element) end
have_left(q, held, 'purged')
if removed > 0 then redis.call('HINCRBY', q.counters, 'purged', removed) end
if removed == 0 and blanks > 0 then return -1 end
return removed
