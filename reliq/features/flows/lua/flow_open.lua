-- flow_open: store the record of a flow that is being sent, or a part of it.
--
-- KEYS  graph, every
-- ARGV  id, size, fields...
--       size: how many members it has
--       fields: each with its value
-- Returns 1, also if this call was carried out before; 0: the flow was given up meanwhile
-- uses: now
-- names of the keys and arguments (tools/generate_scripts.py)
local graph, every = KEYS[1], KEYS[2]
local id, size = ARGV[1], ARGV[2]
local FIELDS = 3
-- end of the names
redis.call('HLEN', graph) -- wrong types are refused here, before the first write
redis.call('ZCARD', every)
local state = redis.call('HGET', graph, 'state')
if state and state ~= 'sending' then return 0 end
local now = now_ms()
if not state then
  redis.call('HSET', graph, 'state', 'sending', 'opened', now, 'size', size, 'left', size)
  redis.call('ZADD', every, now, id)
end
for from = FIELDS, #ARGV, 1000 do redis.call('HSET', graph, unpack(ARGV, from, math.min(from + 999, #ARGV))) end
return 1
