-- Bodies that are stored apart from their elements. Requires `element`.

-- Delete the bodies of these elements, a thousand with one command: each has a cost in the append-only file.
local function delete_bodies(bodies, elements)
  local references = {}
  for _, element in ipairs(elements) do references[#references + 1] = body_of(element) end
  for from = 1, #references, 1000 do
    redis.call('HDEL', bodies, unpack(references, from, math.min(from + 999, #references)))
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
