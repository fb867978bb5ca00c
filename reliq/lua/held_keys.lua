-- held_keys: count the keys that a message of this partition holds and that have their home in another one; read only.
--
-- KEYS  active, config
-- ARGV  cursor
-- Returns {next cursor, number of such keys in this part}
-- uses: element, lanes, partition, homes
-- names of the keys and arguments (tools/generate_scripts.py)
local active, config = KEYS[1], KEYS[2]
local cursor = ARGV[1]
-- end of the names
local PART = 250 -- fields
local q = {active = active, config = config}
local following, fields = unpack(redis.call('HSCAN', q.active, cursor, 'COUNT', PART))
local count = 0
for at = 1, #fields, 2 do
  local group = string.match(fields[at], '^#?(%w+)$') -- one field for a key: the slots of a limit key have others
  if group and #group == GROUP and not is_home(q, group) then count = count + 1 end
end
return {following, count}
