-- flow_change: change the state of a flow, or note that the members are given up of one that is in this state.
--
-- KEYS  graph, every
-- ARGV  id, before, state, kept: number, dropped: flag
--       before: the states in which it may be, with blanks between
--       kept: ms for which the record stays once all members have ended
--       dropped: those that waited are given up. Until that is noted, a monitor gives them up
-- Returns the state of the flow; '' = it does not exist
-- uses: endings, full
-- names of the keys and arguments (tools/generate_scripts.py)
local graph, every = KEYS[1], KEYS[2]
local id, before, state, kept, dropped = ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4]), ARGV[5] == '1'
-- end of the names
redis.call('HLEN', graph) -- wrong types are refused here, before the first write
redis.call('ZCARD', every)
pass_when_full(graph)
local present = redis.call('HGET', graph, 'state')
if not present then return '' end
if dropped and present == state then
  redis.call('HSET', graph, 'dropped', 1)
  return state
end
redis.call('HDEL', graph, 'dropped')
if present == state or not string.find(' ' .. before .. ' ', ' ' .. present .. ' ', 1, true) then return present end
redis.call('HSET', graph, 'state', state)
end_flow(graph, every, id, kept)
return redis.call('HGET', graph, 'state')
