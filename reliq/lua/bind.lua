-- bind: have a queue take what is published to a pattern, or no longer. A new version tells the producers.
--
-- KEYS  1 topics
-- ARGV  1 'bind' | 'unbind'  2.. bindings, each "queue pattern"
-- Returns the number of bindings that changed
local topics, changed = KEYS[1], 0
for at = 2, #ARGV do
  local new = ARGV[1] == 'bind' and redis.call('HSETNX', topics, ARGV[at], 1) or redis.call('HDEL', topics, ARGV[at])
  changed = changed + new
end
local time = redis.call('TIME')
if changed > 0 then redis.call('HSET', topics, 'version', time[1] .. '.' .. time[2]) end
return changed
