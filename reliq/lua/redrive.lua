-- redrive: move dead letters back into the queue, each only if it still exists.
--
-- KEYS  1-13 places  14 dead  15 index
-- ARGV  for each letter: element, id, member of the cycle ('' = none), new element
-- Returns one number per letter: 1 = redriven, 0 = it did not exist, its member is in the cycle with another message, or a
--         newer message of its dedup key is there and replaces it
-- uses: now, element, bodies, rounds, lanes, partition, homes, follow, place
local q, dead, index = places(1), KEYS[14], KEYS[15]
redis.call('HLEN', index) -- a wrong type is refused here, before the first write
local answer, redriven, replaced = {}, 0, 0
for at = 1, #ARGV, 4 do
  local element, id, member, again = unpack(ARGV, at, at + 3)
  local moved = 0
  if redis.call('ZREM', dead, element) == 1 then
    redis.call('HDEL', index, id)
    local group = group_of(again)
    if member ~= '' and redis.call('HEXISTS', q.cycle, group) == 1 then
      replaced = replaced + 1
      drop_body(q, element)
    elseif group and is_latest(group) and redis.call('HEXISTS', q.active, group) == 1 then
      drop_body(q, element) -- it stays counted as dead where a batch counts it
      redis.call('HINCRBY', q.counters, 'replaced', 1)
    else
      if member ~= '' then redis.call('HSET', q.cycle, group, id .. ' ' .. member) end
      has_revived(q, again)
      enter(q, again)
      moved = 1
    end
  end
  redriven = redriven + moved
  answer[#answer + 1] = moved
end
if redriven > 0 then redis.call('HINCRBY', q.counters, 'redriven', redriven) end
if replaced > 0 then redis.call('HINCRBY', q.counters, 'purged_dead', replaced) end
return answer
