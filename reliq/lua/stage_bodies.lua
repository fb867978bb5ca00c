-- stage_bodies: begin a transaction that stores bodies with a part of a job, and ends with `stage`.
--
-- KEYS  1 bodies
-- ARGV  references of the bodies that follow
-- Returns the number of those that are not stored yet
-- Their references are noted: if `stage` refuses the call, it deletes these bodies only. The others are those of an earlier try of
-- this call, which was carried out.
local missing = {}
for _, reference in ipairs(ARGV) do
  if redis.call('HEXISTS', KEYS[1], reference) == 0 then missing[#missing + 1] = reference end
end
if #missing > 0 then redis.call('HSET', KEYS[1], '', table.concat(missing)) end
return #missing
