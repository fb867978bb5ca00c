-- stage_bodies: begin a transaction that stores bodies with a part of a job, and ends with `stage`.
--
-- KEYS  bodies
-- ARGV  references...
--       references: of the bodies that follow
-- Returns the number of those that are not stored yet
-- Their references are noted: if `stage` refuses the call, it deletes these bodies only. The others are those of an earlier try of
-- this call, which was carried out.
-- names of the keys and arguments (tools/generate_scripts.py)
local bodies = KEYS[1]
-- end of the names
local missing = {}
for _, reference in ipairs(ARGV) do
  if redis.call('HEXISTS', bodies, reference) == 0 then missing[#missing + 1] = reference end
end
if #missing > 0 then redis.call('HSET', bodies, '', table.concat(missing)) end
return #missing
