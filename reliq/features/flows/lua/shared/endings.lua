-- The end of a flow.

-- End a flow if all of its members have ended, no producer sends some, and the handler's message that has opened it knows; returns how many
-- members have not.
local function end_flow(graph, every, id, kept)
  local state, left, parent, joined = unpack(redis.call('HMGET', graph, 'state', 'left', 'parent', 'joined'))
  left = tonumber(left)
  if left > 0 or state == 'sending' or parent and not joined then return left end
  if state == 'open' then redis.call('HSET', graph, 'state', 'ended') end
  redis.call('ZREM', every, id)
  redis.call('PEXPIRE', graph, string.format('%.0f', kept))
  return left
end
