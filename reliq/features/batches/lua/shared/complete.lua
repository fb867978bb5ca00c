-- A batch is complete once it waits for messages only: it is closed, and all batches in it have ended.

-- Note, if a batch is complete, that it is: by half a ms in `open`. A monitor need not read the records of all others for that.
local function note_complete(open, id, batch)
  local state, children = unpack(redis.call('HMGET', batch, 'state', 'children'))
  if not state or state == 'open' or tonumber(children or 0) > 0 then return end
  local opened = redis.call('ZSCORE', open, id)
  if opened then redis.call('ZADD', open, string.format('%.1f', math.floor(opened) + 0.5), id) end
end
