-- flow_ended: note what has become of members of a flow; the flow ends with the last of them.
--
-- KEYS  graph, every
-- ARGV  id, kept: number, ended... [number, outcome]
--       kept: ms for which the record stays then
-- Returns how many members have not ended; -1: there is no such flow
-- uses: endings
-- names of the keys and arguments (tools/generate_scripts.py)
local graph, every = KEYS[1], KEYS[2]
local id, kept = ARGV[1], tonumber(ARGV[2])
local ENDED, ENDED_STEP, NUMBER, OUTCOME = 3, 2, 0, 1
-- end of the names
local STAYS = {dead = true, revived = true} -- in the queue
redis.call('HLEN', graph) -- wrong types are refused here, before the first write
redis.call('ZCARD', every)
if redis.call('HEXISTS', graph, 'state') == 0 then return -1 end
for at = ENDED, #ARGV, ENDED_STEP do
  local field, outcome = 'e' .. ARGV[at + NUMBER], ARGV[at + OUTCOME]
  local former = redis.call('HGET', graph, field)
  if not former or STAYS[former] then
    redis.call('HSET', graph, field, outcome)
    if not STAYS[outcome] then redis.call('HINCRBY', graph, 'left', -1) end
  end
end
return end_flow(graph, every, id, kept)
