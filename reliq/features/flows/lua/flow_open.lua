-- flow_open: store the record of a flow that is being sent, or a part of it.
--
-- KEYS  graph, every, outer?
--       outer: the record of the flow of the message whose handler opens this one
-- ARGV  id, size, by, number, member, fields...
--       size: how many members it has
--       by: of the producer: another one is refused
--       number: of that message in its flow
--       member: how the record of that flow begins to tell of it, if the message is really of it
--       fields: each with its value
-- Returns the ms of the server's clock, also if this call was carried out before; 0: the flow was given up meanwhile, or is
-- another one's
-- uses: now
-- names of the keys and arguments (tools/generate_scripts.py)
local graph, every, outer = KEYS[1], KEYS[2], KEYS[3]
local id, size, by, number, member = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]
local FIELDS = 6
-- end of the names
redis.call('HLEN', graph) -- wrong types are refused here, before the first write
redis.call('ZCARD', every)
local state, producer = unpack(redis.call('HMGET', graph, 'state', 'by'))
if state and (state ~= 'sending' or producer ~= by) then return 0 end
local now = now_ms()
if not state then
  redis.call('HSET', graph, 'state', 'sending', 'by', by, 'opened', now, 'size', size, 'left', size)
  redis.call('ZADD', every, now, id)
  local opened, opener = 'c' .. id, 'm' .. number
  local there = outer and redis.call('HGET', outer, opener)
  if there and string.sub(there, 1, #member) == member then redis.call('HSET', outer, opened, number) end
end
for from = FIELDS, #ARGV, 1000 do redis.call('HSET', graph, unpack(ARGV, from, math.min(from + 999, #ARGV))) end
return now
