-- flow_news: read what has happened to members of flows, in its order; read only.
--
-- KEYS  followed, config
-- ARGV  limit: number
-- Returns {number of the last one that is returned, whether the queue has flows, text ...}
-- uses: ring, flow_fields
-- names of the keys and arguments (tools/generate_scripts.py)
local followed, config = KEYS[1], KEYS[2]
local limit = tonumber(ARGV[1])
-- end of the names
local answer = read_notes(followed, FLOW_NEWS, limit)
table.insert(answer, 2, redis.call('HEXISTS', config, 'flowing'))
return answer
