-- The records of messages, fields of `followed`. Under a line feed and the id is the head of a record: how many entries it has, when
-- the message was sent (0: not known yet), the nonce of the push whose handler stored the latest entry, and behind line feeds the names of
-- its signals. Behind the head's field and a line feed are the entries, by their numbers, and the signals, by an exclamation mark and
-- their names. `recorded` of config counts the heads. The part of the moments deletes a record with its message.

local ENDED = 'ended' -- in the place of the head of a message that had signals and has left the queue

local function record_of(id)
  return '\n' .. id
end

-- Returns the number of entries, when the message was sent, the nonce, and the names of the signals; 0 entries without a record.
local function read_head(followed, id)
  local head = redis.call('HGET', followed, record_of(id))
  if not head or head == ENDED then return 0, '0', '-', '', head end
  local count, sent, nonce, names = string.match(head, '^(%d+) (%d+) (%S+)(.*)$')
  return tonumber(count), sent, nonce, names, head
end

local function head_text(count, sent, nonce, names)
  return string.format('%d ', count) .. sent .. ' ' .. nonce .. names
end

-- Whether a record is of another message with the same id.
local function is_others(sent, mine)
  return sent ~= '0' and sent ~= mine
end

local function entry_field(id, number)
  return record_of(id) .. string.format('\n%d', number)
end

-- Store an entry in a record that has `count` of them: the next one, or another one in its place.
local function write_entry(followed, config, id, number, entry, sent, nonce, count, names, head)
  local field = record_of(id)
  local text = head_text(math.max(count, number), sent, nonce, names)
  redis.call('HSET', followed, field, text, entry_field(id, number), entry)
  if not head then redis.call('HINCRBY', config, 'recorded', 1) end
end

local function signal_field(id, name)
  return record_of(id) .. '\n!' .. name
end

-- Store a signal: its value, or that the time to wait for it is over.
local function write_signal(followed, config, id, name, value)
  local count, sent, nonce, names, head = read_head(followed, id)
  redis.call('HSET', followed, record_of(id), head_text(count, sent, nonce, names .. '\n' .. name), signal_field(id, name), value)
  if not head then redis.call('HINCRBY', config, 'recorded', 1) end
end
