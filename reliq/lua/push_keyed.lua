-- push_keyed: add new messages that have an ordering key, a deduplication key or both, and no other option, to a queue without limits. What
-- `enqueue` does with them, with a command a key in place of one a message.
--
-- KEYS  messages, waiting, active, counters, config, producers, bodies, dedup_keys...
--       dedup_keys: of each message, or of none
-- ARGV  producer, sequence: number, entry, ordered: flag, count: number, elements..., contents... [window, digest]
--       entry: as for `push`
--       ordered: whether each has an ordering key: its element ends with the group; otherwise none has
--       count: of the elements
--       contents: of each message with a dedup key, as for `enqueue`
-- Returns {position, first id, position, first id ...}: the duplicates, as those of `enqueue`; 0: the queue has a limit, follows its messages
--         or is a partition, and the caller must use `enqueue`
-- uses: producers, element, bodies, partition, fields
-- names of the keys and arguments (tools/generate_scripts.py)
local messages, waiting, active, counters, config, producers = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6]
local bodies = KEYS[7]
local producer, sequence, entry, ordered = ARGV[1], tonumber(ARGV[2]), ARGV[3], ARGV[4] == '1'
local count = tonumber(ARGV[5])
local DEDUP_KEYS, ELEMENTS, CONTENTS_STEP, WINDOW, DIGEST = 8, 6, 2, 0, 1
-- end of the names
local elements = {unpack(ARGV, ELEMENTS, ELEMENTS + count - 1)}
local policy = redis.call('HMGET', config, 'max_length', 'max_bytes', 'track', 'history', 'flowing', 'homes', 'retired')
policy[7] = is_closed(config, policy[7])
for place = 1, 7 do
  if policy[place] then
    delete_bodies(bodies, elements)
    return 0
  end
end
redis.call('HLEN', counters) -- wrong types are refused before the first write
redis.call('HLEN', bodies)
local repeated = carried_out(producers, producer, sequence)

-- Separate new messages from duplicates, of an earlier call or of another message of this call.
local deduplicated = #KEYS >= DEDUP_KEYS
local answer, fresh, old, seen, values, conflicts = {}, deduplicated and {} or elements, {}, {}, {}, 0
for place, element in ipairs(deduplicated and elements or {}) do
  local id, key = id_of(element), KEYS[DEDUP_KEYS + place - 1]
  local digest = ARGV[ELEMENTS + count + (place - 1) * CONTENTS_STEP + DIGEST]
  local earlier = seen[key] or redis.call('GET', key)
  if not earlier then
    fresh[#fresh + 1] = element
    values[place] = id .. ' ' .. digest
    seen[key] = values[place]
  else
    local first, content = string.match(earlier, '^(%S+) ?(.*)$')
    if not repeated or first ~= id then -- a repeated call finds its own id, which is no duplicate
      local conflict = content ~= '' and content ~= digest
      if conflict then conflicts = conflicts + 1 end
      answer[#answer + 1], answer[#answer + 2] = conflict and -place or place - 1, first
      old[#old + 1] = element
    end
  end
end
if repeated then
  take_back_late(bodies)
  return answer
end

-- The first message of a key that is free is ready, and holds it; the others are behind those that wait for it.
local groups = {}
for place, element in ipairs(ordered and fresh or {}) do
  local last = end_of(element)
  groups[place] = string.sub(element, last - GROUP + 1, last)
end
local holders = #groups > 0 and redis.call('HMGET', active, unpack(groups)) or {}
local taken, held, ready, behind = {}, {}, {}, {}
for place, element in ipairs(fresh) do
  local group = groups[place]
  if group and (holders[place] or taken[group]) then
    behind[#behind + 1] = place
  else
    ready[#ready + 1] = element
    if group then
      taken[group] = true
      held[#held + 1], held[#held + 2] = group, id_of(element)
    end
  end
end
if #behind > 0 then redis.call('ZCARD', waiting) end
if #ready > 0 then redis.call('LPUSH', messages, unpack(ready)) end -- the first write: fails if the key is not a list
redis.call('HSET', producers, producer, entry)
delete_bodies(bodies, old)
for place, value in pairs(values) do
  redis.call('SET', KEYS[DEDUP_KEYS + place - 1], value, 'PX', ARGV[ELEMENTS + count + (place - 1) * CONTENTS_STEP + WINDOW])
end
set_fields(active, held)
if #behind > 0 then
  local turn, lines = redis.call('HINCRBY', counters, 'ordered', #behind) - #behind, {}
  for at, place in ipairs(behind) do
    lines[#lines + 1], lines[#lines + 2] = 0, groups[place] .. string.format('%016.0f', turn + at) .. fresh[place]
  end
  redis.call('ZADD', waiting, unpack(lines))
end
if #fresh > 0 then redis.call('HINCRBY', counters, 'enqueued', #fresh) end
if #answer > 0 then redis.call('HINCRBY', counters, 'deduplicated', #answer / 2) end
if conflicts > 0 then redis.call('HINCRBY', counters, 'dedup_conflicts', conflicts) end
return answer
