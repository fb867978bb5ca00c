-- Rings of notes, which a monitor reads in their order and then forgets: fields of a hash. `ring` is the field of the number of the latest
-- note. One character longer is that of the latest one forgotten and, with a number behind it, each note. The numbers never begin again, or
-- a slow monitor would forget notes that nobody has read: `counter` of config stays when the ring is empty.

-- The field with notes and with what is forgotten.
local function notes_of(ring)
  return ring .. string.sub(ring, 1, 1)
end

-- Returns the numbers of the latest note that is forgotten, and of the latest one.
local function ends_of(hash, ring)
  local done, latest = unpack(redis.call('HMGET', hash, notes_of(ring), ring))
  return tonumber(done or 0), tonumber(latest or 0)
end

local function add_note(hash, config, ring, counter, text)
  local number = redis.call('HINCRBY', config, counter, 1)
  redis.call('HSETNX', hash, notes_of(ring), string.format('%.0f', number - 1))
  number = string.format('%.0f', number)
  redis.call('HSET', hash, ring, number, notes_of(ring) .. number, text)
end

-- Returns {number of the last note that is returned, note ...}.
local function read_notes(hash, ring, limit)
  local done, latest = ends_of(hash, ring)
  local answer = {math.min(latest, done + limit)}
  for number = done + 1, answer[1] do
    answer[#answer + 1] = redis.call('HGET', hash, notes_of(ring) .. string.format('%.0f', number)) or ''
  end
  return answer
end

-- Forget the notes up to a number; returns whether there are no others.
local function forget_notes(hash, ring, up_to)
  local done, latest = ends_of(hash, ring)
  for number = done + 1, math.min(up_to, latest) do redis.call('HDEL', hash, notes_of(ring) .. string.format('%.0f', number)) end
  if up_to >= latest then
    redis.call('HDEL', hash, ring, notes_of(ring))
  elseif up_to > done then
    redis.call('HSET', hash, notes_of(ring), string.format('%.0f', up_to))
  end
  return up_to >= latest
end
