-- The end of a flow.

-- End a flow if all of its members have ended and no producer sends some; returns how many have not.
local function end_flow(graph, every, id, kept)
  local state, left = unpack(redis.call('HMGET', graph, 'state', 'left'))
  left = tonumber(left)
  if left > 0 or state == 'sending' then return left end
  if state == 'open' then redis.call('HSET', graph, 'state', 'ended') end
  redis.call('ZREM', every, id)
  redis.call('PEXPIRE', graph, string.format('%.0f', kept))
  return left
end
