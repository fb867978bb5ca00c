-- held_keys: count the keys that a message of this partition holds and that have their home in another one; read only.
--
-- KEYS  1 active  2 config
-- ARGV  1 cursor
-- Returns {next cursor, number of such keys in this part}
-- uses: element, lanes, partition, homes
local PART = 250 -- fields
local q = {active = KEYS[1], config = KEYS[2]}
local cursor, fields = unpack(redis.call('HSCAN', q.active, ARGV[1], 'COUNT', PART))
local count = 0
for at = 1, #fields, 2 do
  local group = string.match(fields[at], '^#?(%w+)$') -- one field for a key: the slots of a limit key have others
  if group and #group == GROUP and not is_home(q, group) then count = count + 1 end
end
return {cursor, count}
