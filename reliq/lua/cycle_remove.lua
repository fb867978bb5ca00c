-- cycle_remove: members leave the cycle. A message of theirs that is delayed goes at once; one that is ready goes when a
-- consumer meets it, one that is being handled when it is settled.
--
-- KEYS  1-10 places  11 delayed  12 index
-- ARGV  groups
-- Returns 1 or 0 a member: whether it was in the cycle
-- uses: now, element, index, rounds, place
local q, delayed, index = places(1), KEYS[11], KEYS[12]
redis.call('ZCARD', delayed) -- wrong types are refused here, before the first write
redis.call('HLEN', index)
local answer, cancelled = {}, 0
for at, group in ipairs(ARGV) do
  local entry = redis.call('HGET', q.cycle, group)
  answer[at] = entry and 1 or 0
  if entry then
    redis.call('HDEL', q.cycle, group)
    leave_round(q, group)
    local element = unfile(delayed, index, string.match(entry, '^%S+'))
    if element then
      gone(q, element)
      cancelled = cancelled + 1
    end
  end
end
if cancelled > 0 then redis.call('HINCRBY', q.counters, 'cancelled', cancelled) end
return answer
