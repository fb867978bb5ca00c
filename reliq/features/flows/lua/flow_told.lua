-- flow_told: forget what `flow_news` has returned, once everyone knows it; in a queue without flows also that it had some.
--
-- KEYS  followed, config, flows
-- ARGV  up_to: number
-- Returns 1
-- uses: ring, flow_fields
-- names of the keys and arguments (tools/generate_scripts.py)
local followed, config, flows = KEYS[1], KEYS[2], KEYS[3]
local up_to = tonumber(ARGV[1])
-- end of the names
redis.call('HLEN', config) -- wrong types are refused here, before the first write
redis.call('STRLEN', flows)
if forget_notes(followed, FLOW_NEWS, up_to) and redis.call('HEXISTS', config, 'flowing') == 0 then redis.call('DEL', flows) end
return 1
