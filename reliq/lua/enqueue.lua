-- enqueue: add new messages to the queue, all of the call or none of it.
--
-- KEYS  1-13 places  14 delayed  15 index  16 producers  17.. for each entry with a dedup key: that key, or its `burst` if it
--       is to replace the one that waits
-- ARGV  1 producer ('' = none)  2 sequence  3 n plain elements, and in a call to a partition a blank and the version of the layout that
--       the producer knows  4 their batches, each with its number of them, with blanks
--       between  5.. these elements
--       then for each message with options: id, element, delay ms (-1: it waits for its key, which its former home still
--       has), window ms (0 = no dedup key), digest of its body;
--       or, with -1 as window, a message that is to replace the one that waits: id, element, debounce ms, -1, ms after
--       the first of its burst at which it is due at the latest ('' = no limit)
-- Returns {'ok' | 'repeated', now, position, first id, position, first id ...}: each duplicate by its position among the
--         messages with options, as -1 - position if the first message had another body, and the id of the first
--         message; or {'full', now, length, max_length, unit}: nothing was enqueued; or {'moved', now, {position ...},
--         {position ...}}: nothing was enqueued, because these messages with options, and with -1 the plain elements,
--         belong to another partition of the queue; of the ordering keys of the second ones others are still here
-- Refuses a full queue, and messages of a key with its home elsewhere. Answers 'repeated' to a sequence that this producer has used: the call was carried out before.
-- uses: now, element, bodies, index, rounds, lanes, partition, homes, follow, place, latest, room, producers
local q, delayed, index, producers = places(1), unpack(KEYS, 14, 16)
local producer, sequence = ARGV[1], tonumber(ARGV[2])
local plain, version = string.match(ARGV[3], '^(%d+) ?(%d*)$')
plain, version = tonumber(plain), tonumber(version) or 0
local first_plain = 5
local DIGEST = 64 -- characters, at the end of the name of a dedup key
local first_option = first_plain + plain
local now = now_ms()
local repeated = carried_out(producers, producer, sequence)

-- Whether a message with options belongs to another partition. `found`: the queue knows its dedup key.
local closed = is_closed(q.config, redis.call('HGET', q.config, 'retired'))
local function is_moved(entry, found)
  local group, dedup_key = group_of(entry.element), entry.key or entry.burst
  if group and not is_latest(group) then
    if is_cyclic(entry.element) or not (is_away(q, group, entry.element) or is_behind(q, version)) then return false end
    return true, has_key(q, group)
  end
  if dedup_key and not found and not (group and has_key(q, group)) then
    return not is_home(q, string.sub(dedup_key, -DIGEST)) or is_behind(q, version)
  end
  return not dedup_key and (closed or is_behind(q, version))
end

-- Separate new messages from duplicates, of an earlier call or of another message of this call.
local answer, fresh, old, seen, dedup = {}, {}, {}, {}, 16
local position, conflicts, replacing, moved, held = 0, 0, 0, {}, {}
if closed and plain > 0 then moved[1] = -1 end
for at = first_option, #ARGV, 5 do
  local entry = {id = ARGV[at], element = ARGV[at + 1], delay = tonumber(ARGV[at + 2]), window = tonumber(ARGV[at + 3])}
  local first, digest = false, ''
  if entry.window > 0 then
    dedup = dedup + 1
    entry.key = KEYS[dedup]
    entry.value = entry.id .. ' ' .. ARGV[at + 4]
    local value = seen[entry.key] or redis.call('GET', entry.key)
    seen[entry.key] = value or entry.value
    if value then first, digest = string.match(value, '^(%S+) ?(.*)$') end
  elseif entry.window < 0 then
    dedup = dedup + 1
    entry.burst, entry.group = KEYS[dedup], group_of(entry.element)
    entry.debounce, entry.at_most = entry.delay, tonumber(ARGV[at + 4]) or math.huge
    local older = find_older(q, delayed, index, entry)
    if older then
      entry.older, replacing = seen[entry.burst] or older, replacing + 1
      seen[entry.burst] = entry.element
    end
  end
  if q.homes or closed then
    local is_elsewhere, has_others = is_moved(entry, first or entry.older)
    if is_elsewhere then moved[#moved + 1] = position end
    if has_others then held[#held + 1] = position end
  end
  if not first then
    fresh[#fresh + 1] = entry
  elseif not repeated or first ~= entry.id then -- a repeated call finds its own id, which is no duplicate
    local conflict = digest ~= '' and digest ~= ARGV[at + 4]
    if conflict then conflicts = conflicts + 1 end
    answer[#answer + 1] = conflict and -1 - position or position
    answer[#answer + 1] = first
    old[#old + 1] = entry.element
  end
  position = position + 1
end
if repeated then
  take_back_late(q.bodies)
  return {'repeated', now, unpack(answer)}
end
redis.call('HLEN', index) -- a wrong type is refused here, before the first write
local function take_back_bodies()
  delete_bodies(q.bodies, {unpack(ARGV, first_plain, first_option - 1)})
  for _, entry in ipairs(fresh) do delete_bodies(q.bodies, {entry.element}) end
end
delete_bodies(q.bodies, old)
if #moved > 0 then
  take_back_bodies()
  return {'moved', now, moved, held}
end
local length, most, unit = refused(q, delayed, plain + #fresh - replacing, function()
  local size = 0
  for at = first_plain, first_option - 1 do size = size + size_of(ARGV[at]) end
  for _, entry in ipairs(fresh) do
    size = size + size_of(entry.element) - (entry.older and size_of(entry.older) or 0)
  end
  return size
end)
if length then
  take_back_bodies()
  return {'full', now, length, most, unit}
end

local elements = {} -- those that have to be looked at
if q.follows then elements = {unpack(ARGV, first_plain, first_option - 1)} end
local placed = {}
for place, entry in ipairs(fresh) do
  elements[#elements + 1] = entry.element
  placed[place] = entry.element
end
check_batches(q, placed, ARGV[4])
remember(producers, producer, sequence, now)
have_entered(q, elements)
for from = first_plain, first_option - 1, 1000 do
  redis.call('LPUSH', q.messages, unpack(ARGV, from, math.min(from + 999, first_option - 1)))
end
for _, entry in ipairs(fresh) do
  if entry.key then redis.call('SET', entry.key, entry.value, 'PX', entry.window) end
  if entry.burst then
    enter_latest(q, delayed, index, entry, now)
  elseif entry.delay < 0 then
    join_line(q, group_of(entry.element), entry.element)
  elseif entry.delay > 0 then
    index_add(delayed, index, now + entry.delay, entry.id, entry.element)
  else
    enter(q, entry.element, version)
  end
end
if plain + #fresh > 0 then redis.call('HINCRBY', q.counters, 'enqueued', plain + #fresh) end
if #answer > 0 then redis.call('HINCRBY', q.counters, 'deduplicated', #answer / 2) end
if conflicts > 0 then redis.call('HINCRBY', q.counters, 'dedup_conflicts', conflicts) end
return {'ok', now, unpack(answer)}
