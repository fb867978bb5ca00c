-- change_delay: let delayed messages be due at other times. Those of one ms keep their order.
--
-- KEYS  delayed, index
-- ARGV  changes... [id, due]
--       due: ms since the epoch
-- Returns how many of them are delayed
-- uses: now, element, index, full
-- names of the keys and arguments (tools/generate_scripts.py)
local delayed, index = KEYS[1], KEYS[2]
local CHANGES, CHANGES_STEP, ID, DUE = 1, 2, 0, 1
-- end of the names
redis.call('HLEN', index) -- wrong types are refused here, before the first write
redis.call('ZCARD', delayed)
pass_when_full(index)
local changed = 0
for at = CHANGES, #ARGV, CHANGES_STEP do
  local id, due = ARGV[at + ID], tonumber(ARGV[at + DUE])
  local element = index_find(delayed, index, id)
  if element then
    local score = string.format('%.6f', due + redis.call('HGET', index, id) % 1)
    redis.call('ZADD', delayed, score, element)
    redis.call('HSET', index, id, score)
    changed = changed + 1
  end
end
return changed
