-- How many messages each consumer holds, where `concurrency` is limited: `holders` has the consumers with some, and their sum.
-- Each script that changes a processing list writes its length here in the same step. So nobody counts at a claim, and what
-- another program has done to a list is put right as soon as its length is written next. Requires `place`.
-- names of the keys and arguments (tools/generate_scripts.py)
local function named_slots(at) -- types not checked
  return {
    holders = KEYS[at], freed = KEYS[at + 1],
  }
end
-- end of the names

local TOTAL, COUNTED = '#', '!' -- the sum; '1' once all consumers are counted since the limit was set, before: who counts

-- Fail before the first write if a key has a foreign type.
local function check_slots(q, slots)
  if not q.concurrency then return end
  redis.call('HLEN', slots.holders)
  redis.call('LLEN', slots.freed)
end

-- Write the length of a processing list in place of the one known before; returns the sum.
local function write_length(slots, consumer, length, before)
  if length > 0 then
    redis.call('HSET', slots.holders, consumer, length)
  else
    redis.call('HDEL', slots.holders, consumer)
  end
  return redis.call('HINCRBY', slots.holders, TOTAL, length - before)
end

local function wake_one(slots)
  if redis.call('LLEN', slots.freed) == 0 then redis.call('LPUSH', slots.freed, '1') end
end

-- Note that a processing list has changed. `claims_next`: its consumer claims at once, so no other one need be woken.
local function note_held(q, slots, processing, claims_next)
  if not q.concurrency then return end
  local consumer = string.match(processing, 'processing:(.*)$')
  local length, before = redis.call('LLEN', processing), tonumber(redis.call('HGET', slots.holders, consumer) or 0)
  if length == before then return end
  local total = write_length(slots, consumer, length, before)
  if total < q.concurrency and total + before - length >= q.concurrency and not claims_next then wake_one(slots) end
end
