-- flow_hold: note which messages of a flow wait for which, before any of them is sent. The line of a message that waits is held by
-- no message: what is sent there waits, as behind a message of its key.
--
-- KEYS  followed, config, active
-- ARGV  waiting... [group, before]
--       group: of the message that waits: a key of its own
--       before: ids of the messages that it waits for, with blanks between
-- Returns how many lines are held from now on; those that were held before are passed over
-- names of the keys and arguments (tools/generate_scripts.py)
local followed, config, active = KEYS[1], KEYS[2], KEYS[3]
local WAITING, WAITING_STEP, GROUP, BEFORE = 1, 2, 0, 1
-- end of the names
redis.call('HLEN', config) -- wrong types are refused here, before the first write
redis.call('HLEN', followed)
local held, noted = 0, 0
for at = WAITING, #ARGV, WAITING_STEP do
  local group, count = ARGV[at + GROUP], 0
  if redis.call('HSETNX', active, group, '\v') == 1 then
    held = held + 1
    for id in string.gmatch(ARGV[at + BEFORE], '%S+') do
      local field = '\v\v' .. id
      local others = redis.call('HGET', followed, field)
      redis.call('HSET', followed, field, (others or '') .. group)
      if not others then noted = noted + 1 end
      count = count + 1
    end
    redis.call('HSET', followed, '\v' .. group, count)
  end
end
if noted > 0 then redis.call('HINCRBY', config, 'flowing', noted) end
return held
