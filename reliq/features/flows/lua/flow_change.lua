-- flow_change: change the state of a flow.
--
-- KEYS  graph, every
-- ARGV  id, before, state, kept: number
--       before: the states in which it may be, with blanks between
--       kept: ms for which the record stays once all members have ended
-- Returns the state of the flow; '' = it does not exist
-- uses: endings
-- names of the keys and arguments (tools/generate_scripts.py)
local graph, every = KEYS[1], KEYS[2]
local id, before, state, kept = ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4])
-- end of the names
redis.call('HLEN', graph) -- wrong types are refused here, before the first write
redis.call('ZCARD', every)
local present = redis.call('HGET', graph, 'state')
if not present then return '' end
if present == state or not string.find(' ' .. before .. ' ', ' ' .. present .. ' ', 1, true) then return present end
redis.call('HSET', graph, 'state', state)
end_flow(graph, every, id, kept)
return redis.call('HGET', graph, 'state')
