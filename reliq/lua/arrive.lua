-- arrive: begin a transaction that stores large bodies, and ends with the script that enqueues their messages.
--
-- KEYS  producers, bodies...
--       bodies: of each queue
-- ARGV  producer, sequence: number, references...
--       references: of the bodies that follow
-- Returns 1 if the call was carried out before, else 0
-- The messages of a call that was carried out before may be handled by now. So the references that are not stored are
-- noted, and the script at the end of the transaction deletes what was stored under them.
-- uses: producers
-- names of the keys and arguments (tools/generate_scripts.py)
local producers = KEYS[1]
local producer, sequence = ARGV[1], tonumber(ARGV[2])
local BODIES, REFERENCES = 2, 3
-- end of the names
for at = BODIES, #KEYS do redis.call('HLEN', KEYS[at]) end -- wrong types are refused here, before the first write
if not carried_out(producers, producer, sequence) then return 0 end
for at = BODIES, #KEYS do
  local missing = {}
  for place = REFERENCES, #ARGV do
    if redis.call('HEXISTS', KEYS[at], ARGV[place]) == 0 then missing[#missing + 1] = ARGV[place] end
  end
  if #missing > 0 then redis.call('HSET', KEYS[at], '', table.concat(missing)) end
end
return 1
