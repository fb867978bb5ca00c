-- flow_drop: give up messages of a flow that wait, delayed ones too, and those that are not enqueued yet. Others are passed over, and those of other flows.
--
-- KEYS  places, delayed, index, producers
-- ARGV  flow, step: number, forever: flag, ids...
--       step: as for flow_wait, where the producer of the flow calls: then those who call later are told nothing of what was before; else 0
--       forever: also forget those that never came, and members of which nothing is known any more
-- Returns how many were removed
-- uses: now, element, bodies, index, rounds, lanes, partition, homes, follow, place, producers, flow_fields
-- names of the keys and arguments (tools/generate_scripts.py)
local delayed, index, producers = KEYS[14], KEYS[15], KEYS[16]
local flow, step, forever = ARGV[1], tonumber(ARGV[2]), ARGV[3] == '1'
local PLACES, IDS = 1, 4
-- end of the names
make_parts()
local q = places(PLACES)
redis.call('ZCARD', delayed) -- wrong types are refused here, before the first write
for _, hash in ipairs({index, q.followed, producers}) do redis.call('HLEN', hash) end
local producer = step > 0 and 'flow-' .. flow or ''
if carried_out(producers, producer, step) then return 0 end
local removed = 0
local function is_ours(record, pattern)
  return record and string.match(record, pattern) == flow
end

-- Take a message that waits out of its place; nil if it is not there. A delayed one with its id may be of no flow.
local function take(record, id)
  local element = take_from_flow(q, record)
  if element then return element end
  element = index_find(delayed, index, id)
  return element and string.find(element, flow, 1, true) and index_take(delayed, index, id)
end

for at = IDS, #ARGV do
  local id = ARGV[at]
  local waits, member = waits_field(id), member_field(id)
  local record = redis.call('HGET', q.followed, waits)
  local ours = is_ours(record, '(%S+)$') or is_ours(record, '^%d+ %d+ %a (%S+)')
  local element = ours and take(record, id)
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
remember(producers, producer, step, now_ms())
return removed
