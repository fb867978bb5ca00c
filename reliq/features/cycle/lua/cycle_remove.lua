-- cycle_remove: remove members from the cycle. A delayed message of a member is removed at once, a ready one when a
-- consumer claims it, one in processing when it is settled.
--
-- KEYS  places, delayed, index, call?
--       call: has the answer of a call that is repeated, one digit a member
-- ARGV  groups...
-- Returns 1 or 0 per member: whether it was in the cycle
-- uses: now, element, bodies, index, rounds, lanes, partition, homes, follow, place, calls
-- names of the keys and arguments (tools/generate_scripts.py)
local delayed, index, call = KEYS[14], KEYS[15], KEYS[16]
local PLACES = 1
-- end of the names
local q = places(PLACES)
local before = digits_before(call)
if before then return before end
redis.call('ZCARD', delayed) -- wrong types are refused here, before the first write
redis.call('HLEN', index)
local answer, cancelled, removed = {}, 0, false
for at, group in ipairs(ARGV) do
  local entry = redis.call('HGET', q.cycle, group)
  answer[at] = entry and 1 or 0
  if entry then
    redis.call('HDEL', q.cycle, group)
    removed = true
    leave_round(q, group)
    local element = index_take(delayed, index, string.match(entry, '^%S+'))
    if element then
      leave_queue(q, element)
      have_left(q, {element}, 'cancelled')
      cancelled = cancelled + 1
    end
  end
end
if cancelled > 0 then redis.call('HINCRBY', q.counters, 'cancelled', cancelled) end
if removed then answer_with(call, table.concat(answer)) end
return answer
