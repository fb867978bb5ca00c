-- bind: add or remove bindings of queues to patterns. A new version number tells the producers to read them again.
--
-- KEYS  topics, call?
--       call: has the answer of a call that is repeated
-- ARGV  verb, bindings...
--       verb: 'bind' | 'unbind' | 'alternate' | 'no_longer_alternate'
--       bindings: each "queue pattern"; or the queue that is the alternate, or is it no longer
-- Returns the number of bindings that changed
-- uses: calls
-- names of the keys and arguments (tools/generate_scripts.py)
local topics, call = KEYS[1], KEYS[2]
local verb = ARGV[1]
local BINDINGS = 2
-- end of the names
local before = answer_before(call)
if before then return tonumber(before) end
local changed = 0
for at = BINDINGS, #ARGV do
  if verb == 'bind' then
    changed = changed + redis.call('HSETNX', topics, ARGV[at], 1)
  elseif verb == 'unbind' then
    changed = changed + redis.call('HDEL', topics, ARGV[at])
  elseif verb == 'no_longer_alternate' then
    if redis.call('HGET', topics, 'alternate') == ARGV[at] then changed = redis.call('HDEL', topics, 'alternate') end
  else
    redis.call('HSET', topics, 'alternate', ARGV[at])
    changed = 1
  end
end
local time = redis.call('TIME')
if changed > 0 then
  redis.call('HSET', topics, 'version', time[1] .. '.' .. time[2])
  answer_with(call, changed)
end
return changed
