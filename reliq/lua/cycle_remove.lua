-- cycle_remove: members leave the cycle. A message of theirs that is delayed goes at once; one that is ready goes when a
-- consumer meets it, one that is being handled when it is settled.
--
-- KEYS  1-8 places  9 delayed  10 index
-- ARGV  groups
-- Returns 1 or 0 a member: whether it was in the cycle
-- uses: index, place
local q, delayed, index = places(1), KEYS[9], KEYS[10]
local answer, cancelled = {}, 0
for at, group in ipairs(ARGV) do
  answer[at] = redis.call('HDEL', q.cycle, group)
  local id = redis.call('HGET', q.active, group)
  if id and unfile(delayed, index, id) then
    advance(q, group, id)
    cancelled = cancelled + 1
  end
end
if cancelled > 0 then redis.call('HINCRBY', q.counters, 'cancelled', cancelled) end
return answer
