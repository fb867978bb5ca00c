-- flow_news: read what has happened to members of flows, in its order; read only.
--
-- KEYS  followed, config
-- ARGV  limit: number
-- Returns {number of the last one that is returned, whether the queue has flows, text ...}
-- names of the keys and arguments (tools/generate_scripts.py)
local followed, config = KEYS[1], KEYS[2]
local limit = tonumber(ARGV[1])
-- end of the names
local latest = tonumber(redis.call('HGET', followed, '\v\v\v') or 0)
local done = tonumber(redis.call('HGET', followed, '\v\v\v\v') or 0)
local answer = {math.min(latest, done + limit), redis.call('HEXISTS', config, 'flowing')}
for number = done + 1, answer[1] do
  answer[#answer + 1] = redis.call('HGET', followed, '\v\v\v\v' .. string.format('%.0f', number)) or ''
end
return answer
