-- purge: delete ready and delayed messages, a bounded number per call.
--
-- KEYS  places, delayed, index, call?
--       call: has the number of a call that is repeated
-- ARGV  limit: number
--       limit: messages to delete at most
-- Returns {the number deleted, 1 if there may be more, else 0, member of `waiting` ...}: messages that a monitor takes to
--         another partition, which are not deleted
-- uses: now, element, bodies, rounds, lanes, partition, homes, follow, place, calls
-- names of the keys and arguments (tools/generate_scripts.py)
local delayed, index, call = KEYS[14], KEYS[15], KEYS[16]
local limit = tonumber(ARGV[1])
local PLACES = 1
-- end of the names
local q = places(PLACES)
local before = answer_before(call)
if before then return {tonumber(before), 1} end
redis.call('ZCARD', delayed) -- wrong types are refused here, before the first write
redis.call('HLEN', index)
local left, removed, strays = limit, 0, {}

local waiting = redis.call('ZRANGE', q.waiting, 0, left - 1) -- first, so that no waiting message becomes ready
left = left - #waiting
for _, member in ipairs(waiting) do -- a waiting message does not hold its key
  if is_stray(member) then
    strays[#strays + 1] = member
  else
    local element = element_in_line(member)
    redis.call('ZREM', q.waiting, member)
    leave_cycle(q, element)
    drop_body(q, element)
    have_left(q, {element}, 'purged')
    removed = removed + 1
  end
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
if removed > 0 then
  redis.call('HINCRBY', q.counters, 'purged', removed)
  answer_with(call, removed)
end
return {removed, (removed > 0 or blanks > 0 or #strays > 0) and 1 or 0, unpack(strays)}
