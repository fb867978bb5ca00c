-- flow_told: forget what `flow_news` has returned, once everyone knows it; in a queue without flows also that it had some.
--
-- KEYS  followed, config, flows
-- ARGV  up_to: number
-- Returns how many texts there were
-- names of the keys and arguments (tools/generate_scripts.py)
local followed, config, flows = KEYS[1], KEYS[2], KEYS[3]
local up_to = tonumber(ARGV[1])
-- end of the names
redis.call('HLEN', config) -- wrong types are refused here, before the first write
redis.call('STRLEN', flows)
local latest = tonumber(redis.call('HGET', followed, '\v\v\v') or 0)
local done = tonumber(redis.call('HGET', followed, '\v\v\v\v') or 0)
local count = 0
for number = done + 1, math.min(up_to, latest) do
  count = count + redis.call('HDEL', followed, '\v\v\v\v' .. string.format('%.0f', number))
end
if up_to < latest then
  if up_to > done then redis.call('HSET', followed, '\v\v\v\v', string.format('%.0f', up_to)) end
  return count
end
redis.call('HDEL', followed, '\v\v\v', '\v\v\v\v')
if redis.call('HEXISTS', config, 'flowing') == 0 then redis.call('DEL', flows) end
return count
