-- Write the signals of a record. Requires `records` and `entries`.

local function signal_field(id, name)
  return record_of(id) .. '\n!' .. name
end

-- Store a signal: its value, or that the time to wait for it is over.
local function write_signal(followed, config, id, name, value)
  local count, sent, nonce, names, head = read_head(followed, id)
  redis.call('HSET', followed, record_of(id), head_text(count, sent, nonce, names .. '\n' .. name), signal_field(id, name), value)
  if not head then redis.call('HINCRBY', config, 'recorded', 1) end
end
