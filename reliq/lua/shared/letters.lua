-- Dead letters in the index: under a blank and the id, as a delayed message may have the same id. Earlier versions wrote the
-- id alone.

local function letter_field(id)
  return ' ' .. id
end

-- The fields that may have the score of a dead letter.
local function letter_fields(id)
  return {letter_field(id), id}
end

-- Remove a dead letter, with its entry of the index. Returns whether it was there.
local function take_letter(dead, index, id, element)
  local score = redis.call('ZSCORE', dead, element)
  if not score then return false end
  redis.call('ZREM', dead, element)
  local fields = letter_fields(id)
  for at, known in ipairs(redis.call('HMGET', index, unpack(fields))) do
    if tonumber(known) == tonumber(score) then redis.call('HDEL', index, fields[at]) end
  end
  return true
end
