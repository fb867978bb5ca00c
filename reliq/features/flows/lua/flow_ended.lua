-- flow_ended: note what has become of members of a flow; the flow ends with the last of them. Of one that is still being sent it is
-- also noted that those behind them are to be told once the flow is open.
--
-- KEYS  graph, every
-- ARGV  id, kept: number, joined: flag, ended... [number, outcome]
--       kept: ms for which the record stays then
--       joined: the message whose handler has opened the flow knows how it ended
-- Returns {how many members have not ended, state, parent, of the last members: how many have not ended, are dead, have failed}; {}: there
-- is no such flow. The parent and what follows are nil in a flow that no handler has opened
-- uses: endings, full
-- names of the keys and arguments (tools/generate_scripts.py)
local graph, every = KEYS[1], KEYS[2]
local id, kept, joined = ARGV[1], tonumber(ARGV[2]), ARGV[3] == '1'
local ENDED, ENDED_STEP, NUMBER, OUTCOME = 4, 2, 0, 1
-- end of the names
local STAYS = {dead = true, revived = true} -- in the queue
redis.call('HLEN', graph) -- wrong types are refused here, before the first write
redis.call('ZCARD', every)
if redis.call('HEXISTS', graph, 'state') == 0 then return {} end
pass_when_full(graph)
if joined then redis.call('HSET', graph, 'joined', '1') end

-- Count a last member, one that no other waits for, among those that it belongs to now.
local CLASSES = {dead = 'deads', revived = 'rest'}
local function class_of(outcome)
  return not outcome and 'rest' or outcome ~= 'acked' and (CLASSES[outcome] or 'failed')
end
local function count(number, former, outcome)
  local last = 'l' .. number
  if class_of(former) == class_of(outcome) or redis.call('HEXISTS', graph, last) == 0 then return end
  if class_of(former) then redis.call('HINCRBY', graph, class_of(former), -1) end
  if class_of(outcome) then redis.call('HINCRBY', graph, class_of(outcome), 1) end
end

for at = ENDED, #ARGV, ENDED_STEP do
  local field, outcome = 'e' .. ARGV[at + NUMBER], ARGV[at + OUTCOME]
  local former = redis.call('HGET', graph, field)
  if not former or STAYS[former] then
    redis.call('HSET', graph, field, outcome)
    count(ARGV[at + NUMBER], former, outcome)
    if not STAYS[outcome] then redis.call('HINCRBY', graph, 'left', -1) end
  end
end
if ARGV[ENDED] and redis.call('HGET', graph, 'state') == 'sending' then redis.call('HSET', graph, 'untold', '1') end
local left = end_flow(graph, every, id, kept)
return {left, unpack(redis.call('HMGET', graph, 'state', 'parent', 'rest', 'deads', 'failed'))}
