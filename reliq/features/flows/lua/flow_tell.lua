-- flow_tell: tell messages what has become of those that they wait for. What was told before changes nothing.
--
-- KEYS  places, delayed, index
-- ARGV  told... [id, place, outcome]
--       place: of the one that has ended, among those that the message waits for
--       outcome: acked, dead (it may be redriven), or any other: it is gone
-- Returns {id, element ...} of those that are to become dead letters: `flow_bury`
-- uses: now, element, bodies, index, rounds, lanes, partition, homes, follow, place, full, flow_fields
-- names of the keys and arguments (tools/generate_scripts.py)
local delayed, index = KEYS[14], KEYS[15]
local PLACES, TOLD, TOLD_STEP, ID, PLACE, OUTCOME = 1, 1, 3, 0, 1, 2
-- end of the names
make_parts()
local q = places(PLACES)
redis.call('ZCARD', delayed) -- wrong types are refused here, before the first write
redis.call('HLEN', index)
redis.call('HLEN', q.followed)
pass_when_full(q.followed)
q.skips = 'skipped'
local answer, ready, ids = {}, {}, {}

-- Remove a message that is not to run.
local function skip(id, record)
  local element = take_from_flow(q, record) or index_take(delayed, index, id)
  if not element then return have_ended(q, {id}, 'skipped') end
  leave_queue(q, element)
  have_left(q, {element}, 'cancelled')
  redis.call('HINCRBY', q.counters, 'cancelled', 1)
end

-- Returns whether the message waits no longer for one with this outcome, which is not acked.
local function judge(id, outcome)
  local record = redis.call('HGET', q.followed, waits_field(id))
  local line, rule = string.match(record or '', '^(%d+) %d+ (%a)')
  if not line then return false end
  if rule == 'r' then return true end
  if rule == 's' then
    skip(id, record)
  elseif outcome ~= 'dead' then
    line = string.format('\v%015.0f', line)
    local first = redis.call('ZRANGEBYLEX', q.waiting, '[' .. line, '(' .. line .. '\255', 'LIMIT', 0, 1)[1]
    local element = first and element_in_line(first) or index_find(delayed, index, id)
    if not element then return have_ended(q, {id}, 'lost') end
    answer[#answer + 1] = id
    answer[#answer + 1] = element
  end
  return false
end

for at = TOLD, #ARGV, TOLD_STEP do
  local id = ARGV[at + ID]
  if ARGV[at + OUTCOME] == 'acked' or judge(id, ARGV[at + OUTCOME]) then
    if not ready[id] then
      ready[id] = {}
      ids[#ids + 1] = id
    end
    ready[id][#ready[id] + 1] = ARGV[at + PLACE]
  end
end
let_all_go(q, ids, ready, true)
return answer
