-- bind: add or remove bindings of queues to patterns. A new version number tells the producers to read them again.
--
-- KEYS  topics
-- ARGV  verb, bindings...
--       verb: 'bind' | 'unbind' | 'alternate'
--       bindings: each "queue pattern", or the queue that is the alternate
-- Returns the number of bindings that changed
-- names of the keys and arguments (tools/generate_scripts.py)
local topics = KEYS[1]
local verb = ARGV[1]
local BINDINGS = 2
-- end of the names
local changed = 0
for at = BINDINGS, #ARGV do
  if verb == 'bind' then
    changed = changed + redis.call('HSETNX', topics, ARGV[at], 1)
  elseif verb == 'unbind' then
    changed = changed + redis.call('HDEL', topics, ARGV[at])
  else
    redis.call('HSET', topics, 'alternate', ARGV[at])
    changed = 1
  end
end
local time = redis.call('TIME')
if changed > 0 then redis.call('HSET', topics, 'version', time[1] .. '.' .. time[2]) end
return changed
