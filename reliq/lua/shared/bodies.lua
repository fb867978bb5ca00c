-- The bodies that a producer stored in `bodies` in the same transaction, just before this script. Requires `element`.

-- Delete the bodies of these elements, because the script refuses them.
local function take_back(bodies, elements)
  for _, element in ipairs(elements) do
    if body_of(element) then redis.call('HDEL', bodies, body_of(element)) end
  end
end

-- Delete the bodies that `arrive` has noted, because the call was carried out before.
local function take_back_late(bodies)
  local late = redis.call('HGET', bodies, '')
  if not late then return end
  redis.call('HDEL', bodies, '')
  for at = 1, #late, BODY_REFERENCE do
    redis.call('HDEL', bodies, string.sub(late, at, at + BODY_REFERENCE - 1))
  end
end
