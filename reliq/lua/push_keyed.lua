-- push_keyed: add new messages that have an ordering key and no other option but a deduplication key, to a queue without limits. What
-- `enqueue` does with them, with a command a key in place of one a message.
--
-- KEYS  messages, waiting, active, counters, config, producers, dedup_keys...
--       dedup_keys: of each message, or of none
-- ARGV  producer, sequence: number, entry, options... [id, element, window, digest]
--       entry: as for `push`
--       element: with its body; it ends with the group of its key
--       window, digest: as for `enqueue`
-- Returns {position, first id, position, first id ...}: the duplicates, as those of `enqueue`; 0: the queue has a limit, follows its messages
--         or is a partition, and the caller must use `enqueue`
-- uses: producers, element, partition
-- names of the keys and arguments (tools/generate_scripts.py)
local messages, waiting, active, counters, config, producers = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6]
local producer, sequence, entry = ARGV[1], tonumber(ARGV[2]), ARGV[3]
local DEDUP_KEYS, OPTIONS, OPTIONS_STEP, ID, ELEMENT, WINDOW, DIGEST = 7, 4, 4, 0, 1, 2, 3
-- end of the names
local policy = redis.call('HMGET', config, 'max_length', 'max_bytes', 'track', 'history', 'flowing', 'homes', 'retired')
for place = 1, 6 do
  if policy[place] then return 0 end
end
if is_closed(config, policy[7]) then return 0 end
redis.call('LLEN', messages) -- wrong types are refused here, before the first write
redis.call('ZCARD', waiting)
redis.call('HLEN', counters)
local repeated = carried_out(producers, producer, sequence)

-- Separate new messages from duplicates, of an earlier call or of another message of this call.
local answer, fresh, seen, groups, known, conflicts = {}, {}, {}, {}, {}, 0
for at = OPTIONS, #ARGV, OPTIONS_STEP do
  local position = (at - OPTIONS) / OPTIONS_STEP
  local id, key = ARGV[at + ID], KEYS[DEDUP_KEYS + position]
  local earlier = key and (seen[key] or redis.call('GET', key))
  if not earlier then
    local group = string.sub(ARGV[at + ELEMENT], -GROUP)
    if not known[group] then groups[#groups + 1], known[group] = group, true end
    fresh[#fresh + 1] = {id = id, element = ARGV[at + ELEMENT], group = group, key = key, window = ARGV[at + WINDOW]}
    if key then
      fresh[#fresh].value = id .. ' ' .. ARGV[at + DIGEST]
      seen[key] = fresh[#fresh].value
    end
  else
    local first, digest = string.match(earlier, '^(%S+) ?(.*)$')
    if not repeated or first ~= id then -- a repeated call finds its own id, which is no duplicate
      local conflict = digest ~= '' and digest ~= ARGV[at + DIGEST]
      if conflict then conflicts = conflicts + 1 end
      answer[#answer + 1], answer[#answer + 2] = conflict and -1 - position or position, first
    end
  end
end
if repeated then return answer end

-- The first message of a key that is free is ready, and holds it; the others are behind those that wait for it.
local held, ready, behind = {}, {}, {}
for at, holder in ipairs(#groups > 0 and redis.call('HMGET', active, unpack(groups)) or {}) do known[groups[at]] = holder end
for _, one in ipairs(fresh) do
  if known[one.group] then
    behind[#behind + 1] = one
  else
    known[one.group] = one.id
    held[#held + 1], held[#held + 2] = one.group, one.id
    ready[#ready + 1] = one.element
  end
end
redis.call('HSET', producers, producer, entry)
for _, one in ipairs(fresh) do
  if one.key then redis.call('SET', one.key, one.value, 'PX', one.window) end
end
if #ready > 0 then
  redis.call('HSET', active, unpack(held))
  redis.call('LPUSH', messages, unpack(ready))
end
if #behind > 0 then
  local turn, lines = redis.call('HINCRBY', counters, 'ordered', #behind) - #behind, {}
  for at, one in ipairs(behind) do
    lines[#lines + 1], lines[#lines + 2] = 0, one.group .. string.format('%016.0f', turn + at) .. one.element
  end
  redis.call('ZADD', waiting, unpack(lines))
end
if #fresh > 0 then redis.call('HINCRBY', counters, 'enqueued', #fresh) end
if #answer > 0 then redis.call('HINCRBY', counters, 'deduplicated', #answer / 2) end
if conflicts > 0 then redis.call('HINCRBY', counters, 'dedup_conflicts', conflicts) end
return answer
