-- Read a whole record. Requires `records`.

-- Returns {head, entry ..., signal ...}: the entries by their numbers, the signals in the order of their names in the head; {} without
-- a record.
local function record_fields(followed, id)
  local count, _, _, names, head = read_head(followed, id)
  if not head or head == ENDED then return {} end
  local found = {head}
  for number = 1, count do found[#found + 1] = redis.call('HGET', followed, record_of(id) .. '\n' .. number) end
  for name in string.gmatch(names, '\n([^\n]+)') do found[#found + 1] = redis.call('HGET', followed, record_of(id) .. '\n!' .. name) end
  return found
end
