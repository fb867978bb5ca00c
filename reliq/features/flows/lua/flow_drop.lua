-- flow_drop: give up messages of a flow that wait, also those that are not enqueued yet. Others are passed over, and those of other flows.
--
-- KEYS  places
-- ARGV  flow, forever: flag, ids...
--       forever: also forget those that never came, and members of which nothing is known any more
-- Returns how many were removed
-- uses: now, element, bodies, rounds, lanes, partition, homes, follow, place
-- names of the keys and arguments (tools/generate_scripts.py)
local flow, forever = ARGV[1], ARGV[2] == '1'
local PLACES, IDS = 1, 3
-- end of the names
local q = places(PLACES)
redis.call('HLEN', q.followed) -- a wrong type is refused here, before the first write
local removed = 0
local function is_ours(record, pattern)
  return record and string.match(record, pattern) == flow
end

for at = IDS, #ARGV do
  local id = ARGV[at]
  local waits, member = '\v' .. id, '\v\v' .. id
  local record = redis.call('HGET', q.followed, waits)
  local ours = is_ours(record, '(%S+)$') or is_ours(record, '^%d+ %d+ %a (%S+)')
  local element = ours and take_from_flow(q, record)
  if element then
    leave_queue(q, element)
    have_left(q, {element}, 'cancelled')
    removed = removed + 1
  elseif forever then
    if ours then count_flowing(q, -redis.call('HDEL', q.followed, waits)) end
    if is_ours(redis.call('HGET', q.followed, member), '^(%S+)') then count_flowing(q, -redis.call('HDEL', q.followed, member)) end
  elseif ours and string.sub(record, 1, 1) ~= 'x' then -- it may come still
    have_ended(q, {id}, 'cancelled')
    redis.call('HSET', q.followed, waits, 'x ' .. flow)
    count_flowing(q, 1)
  end
end
if removed > 0 then redis.call('HINCRBY', q.counters, 'cancelled', removed) end
return removed
