-- bind: add or remove bindings of queues to patterns. A new version number tells the producers to read them again.
--
-- KEYS  1 topics
-- ARGV  1 'bind' | 'unbind' | 'alternate'  2.. bindings, each "queue pattern", or the queue that is the alternate
-- Returns the number of bindings that changed
local topics, changed = KEYS[1], 0
for at = 2, #ARGV do
  if ARGV[1] == 'bind' then
    changed = changed + redis.call('HSETNX', topics, ARGV[at], 1)
  elseif ARGV[1] == 'unbind' then
    changed = changed + redis.call('HDEL', topics, ARGV[at])
  else
    redis.call('HSET', topics, 'alternate', ARGV[at])
    changed = 1
  end
end
local time = redis.call('TIME')
if changed > 0 then redis.call('HSET', topics, 'version', time[1] .. '.' .. time[2]) end
return changed
