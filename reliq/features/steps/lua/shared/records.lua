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

-- Whether a record is of another message with the same id.
local function is_others(sent, mine)
  return sent ~= '0' and sent ~= mine
end
