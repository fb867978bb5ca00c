-- report: store what a handler reports about its message, if its consumer still holds it.
--
-- KEYS  1 lease  2 report  3 processing
-- ARGV  1 tag of the push of the message  2 ms for which the report is kept  3 name of the element, as for settle
--       4 place where it should be, as for settle: if it is elsewhere, it is searched  5.. fields and values
-- Returns 1, or 0 if the lease is lost or the message is settled: nothing was stored
-- uses: now
local lease, report, processing = unpack(KEYS)
local tag, kept, name, place = unpack(ARGV, 1, 4)
redis.call('STRLEN', lease) -- wrong types are refused here, before the first write
redis.call('HLEN', report)
redis.call('LLEN', processing)

local function is_named(element)
  return element and string.sub(element, 1, #name) == name
end

local function is_held()
  if is_named(redis.call('LINDEX', processing, -1 - place)) then return true end
  for _, element in ipairs(redis.call('LRANGE', processing, 0, -1)) do
    if is_named(element) then return true end
  end
  return false
end

if redis.call('EXISTS', lease) == 0 or not is_held() then return 0 end
redis.call('HSET', report, 'tag', tag, 'at', now_ms(), unpack(ARGV, 5))
redis.call('PEXPIRE', report, kept)
return 1
