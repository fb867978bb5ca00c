-- Write the entries of a record. Requires `records`.

local function head_text(count, sent, nonce, names)
  return count .. ' ' .. sent .. ' ' .. nonce .. names
end

-- Store an entry in a record that has `count` of them: the next one, or another one in its place.
local function write_entry(followed, config, field, number, entry, sent, nonce, count, names, head)
  redis.call('HSET', followed, field, head_text(math.max(count, number), sent, nonce, names), field .. '\n' .. number, entry)
  if not head then redis.call('HINCRBY', config, 'recorded', 1) end
end
