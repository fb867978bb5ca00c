-- Limit keys: a message with one is ready if its key has a free slot; the others of the key wait in its line, as those of an
-- ordering key do. A slot is the field "group id" of `active`, and "#group" counts those of a key.
--
-- With `key_concurrency` a key has so many slots, and a message keeps its slot until it is done: so many are ready or in
-- processing. Otherwise it gives the slot up when it is claimed, and the next one of its key is taken after one of each
-- other key; a key has as many slots as its weight.

local LINE_STEP = 1000 -- messages of a line that become ready in one call

-- The element in an entry of a line, behind its group and its turn.
local function element_in_line(entry)
  return string.sub(entry, 33)
end

-- Whether this is the turn of a message that a monitor takes to another partition, the home of its key.
local function goes_home(turn)
  return string.sub(turn, 1, 1) == '~'
end

-- Whether a member of `waiting` is such a message; if the home of its key is here again, a monitor lets it stay. It may have
-- come to another one already: who removes such a message asks there first (reliq.protocol.relocation).
local function is_stray(member)
  return goes_home(string.sub(member, GROUP + 1))
end

-- Whether this is the line of a message that waits for others of its flow, and for no key.
local function is_of_flow(line)
  return string.sub(line, 1, 1) == '\v'
end

-- The first entry of a line; nil if none waits.
local function first_in_line(q, group)
  return redis.call('ZRANGEBYLEX', q.waiting, '[' .. group, '(' .. group .. '\255', 'LIMIT', 0, 1)[1]
end

-- How many slots a key has; nil: the queue has no limits for keys, and so no slots. Second, whether a claim gives them up.
local function slots_of(q, group)
  local policy = q.key_policy or redis.call('HMGET', q.config, 'key_concurrency', 'fair', 'key_rate', 'weight_digests')
  q.key_policy = policy
  if policy[1] then return tonumber(policy[1]), false end
  if not (policy[2] or policy[3]) then return nil, false end
  return tonumber(policy[4] and string.match(policy[4], group .. '=(%d+)') or 1), true
end

local function note_slots(q, group, held)
  if held > 0 then
    redis.call('HSET', q.active, '#' .. group, held)
  else
    redis.call('HDEL', q.active, '#' .. group)
  end
end

local function has_slot(q, group, id)
  return redis.call('HEXISTS', q.active, group .. ' ' .. id) == 1
end

-- Give a slot to a message; 1, or 0 if a message with the same id has it.
local function keep_slot(q, group, id)
  return redis.call('HSETNX', q.active, group .. ' ' .. id, 1)
end

-- Whether a new message may be ready: it gets a slot, or the queue has none.
local function take_slot(q, group, id)
  local most = slots_of(q, group)
  if not most then return true end
  local held = tonumber(redis.call('HGET', q.active, '#' .. group) or 0)
  if held >= most or keep_slot(q, group, id) == 0 then return false end
  note_slots(q, group, held + 1)
  return true
end

-- Give a message that goes back to be taken next the slot that its claim gave up, beside the one that has it by now.
local function retake_slot(q, element)
  if not is_laned(element) then return end
  local group = group_of(element)
  local _, until_claim = slots_of(q, group)
  if until_claim and keep_slot(q, group, id_of(element)) == 1 then
    note_slots(q, group, tonumber(redis.call('HGET', q.active, '#' .. group) or 0) + 1)
    q.keyed = true
  end
end

-- Give up the slot of a message; returns how many its key still has, or nil if the message had none.
local function give_up_slot(q, group, id)
  if redis.call('HDEL', q.active, group .. ' ' .. id) == 0 then return nil end
  return tonumber(redis.call('HGET', q.active, '#' .. group) or 1) - 1
end
