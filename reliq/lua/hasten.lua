-- hasten: make delayed messages due now. The next promotion makes them ready.
--
-- KEYS  delayed, index
-- ARGV  ids...
-- Returns how many of them are delayed
-- uses: now, element, index, full
-- names of the keys and arguments (tools/generate_scripts.py)
local delayed, index = KEYS[1], KEYS[2]
local IDS = 1
-- end of the names
redis.call('HLEN', index) -- wrong types are refused here, before the first write
redis.call('ZCARD', delayed)
pass_when_full(index)
local now, hastened = now_ms(), 0
for at = IDS, #ARGV do
  local id = ARGV[at]
  local element = index_find(delayed, index, id)
  if element then
    index_add(delayed, index, now, id, element)
    hastened = hastened + 1
  end
end
return hastened
