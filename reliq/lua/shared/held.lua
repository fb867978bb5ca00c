-- The message that a consumer holds, by its name and by where it should be.

-- Returns the element, or nil if the consumer does not hold it.
local function held_element(processing, name, place)
  local element = redis.call('LINDEX', processing, -1 - place)
  if element and string.sub(element, 1, #name) == name then return element end
  for _, other in ipairs(redis.call('LRANGE', processing, 0, -1)) do
    if string.sub(other, 1, #name) == name then return other end
  end
end
