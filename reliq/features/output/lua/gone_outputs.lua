-- gone_outputs: find streams of output that are to be deleted, as their messages have left the queue unhandled; read only.
--
-- KEYS  followed, outputs
-- ARGV  limit: number
-- Returns {up to which number, id ...}; {} if there are none
-- names of the keys and arguments (tools/generate_scripts.py)
local followed, outputs = KEYS[1], KEYS[2]
local limit = tonumber(ARGV[1])
-- end of the names
redis.call('STRLEN', outputs) -- a wrong type is refused here
local latest = tonumber(redis.call('HGET', followed, '\t') or 0)
local done = tonumber(redis.call('HGET', followed, '\t\t') or 0)
if latest <= done then return {} end
local reply = {string.format('%d', math.min(latest, done + limit))}
for number = done + 1, reply[1] do
  reply[#reply + 1] = redis.call('HGET', followed, '\t\t' .. string.format('%d', number))
end
return reply
