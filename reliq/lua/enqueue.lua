-- enqueue: add new messages to the queue, all of the call or none of it.
--
-- KEYS  places, delayed, index, producers, dedup_keys...
--       dedup_keys: for each entry with a dedup key: that key, or its `burst` if it is to replace the one that waits
-- ARGV  producer, sequence: number, plain_and_version, batches, elements...,
--       options... [id, element, delay, window, digest]
--       producer: '' = none
--       plain_and_version: n plain elements, and in a call to a partition a blank and the version of the layout that
--       the producer knows
--       batches: of the plain elements, each with its number of them, with blanks between
--       elements: the plain ones
--       options: of each message with options; delay: ms, or -1: it waits for its key, which its former home still has;
--       window: ms, 0 = no dedup key; digest: of its body.
--       A message that is to replace the one that waits has the debounce in ms as delay, -1 as window, and as digest the
--       ms after the first of its burst at which it is due at the latest ('' = no limit)
-- Returns {'ok' | 'repeated', now, position, first id, position, first id ...}: each duplicate by its position among the
--         messages with options, as -1 - position if the first message had another body, and the id of the first
--         message; or {'full', now, length, max_length, unit}: nothing was enqueued; or {'moved', now, {position ...},
--         {position ...}}: nothing was enqueued, because these messages with options, and with -1 the plain elements,
--         belong to another partition of the queue; of the ordering keys of the second ones others are still here
-- Refuses a full queue, and messages of a key with its home elsewhere. Answers 'repeated' to a sequence that this producer has used: the call was carried out before.
-- uses: now, element, bodies, index, rounds, lanes, partition, homes, follow, place, latest, fields, together, room, producers, dedup
-- names of the keys and arguments (tools/generate_scripts.py)
local delayed, index, producers = KEYS[14], KEYS[15], KEYS[16]
local producer, sequence, plain_and_version, batches = ARGV[1], tonumber(ARGV[2]), ARGV[3], ARGV[4]
local PLACES, DEDUP_KEYS, ELEMENTS, OPTIONS_STEP, ID, ELEMENT, DELAY, WINDOW, DIGEST = 1, 17, 5, 5, 0, 1, 2, 3, 4
-- end of the names
local q = places(PLACES)
local plain, version = string.match(plain_and_version, '^(%d+) ?(%d*)$')
plain, version = tonumber(plain), tonumber(version) or 0
local DIGEST_LENGTH = 64 -- characters, at the end of the name of a dedup key
local first_option = ELEMENTS + plain
local now = now_ms()
local repeated = carried_out(producers, producer, sequence)

-- Whether a message with options belongs to another partition. `found`: the queue knew its dedup key before this call.
local closed = is_closed(q.config, redis.call('HGET', q.config, 'retired'))
local function is_moved(entry, found)
  local group, dedup_key = group_of(entry.element), entry.key or entry.burst
  if entry.key and found then return false end -- a duplicate: the partition that knows the first message answers it
  if group and not is_latest(group) then
    if is_cyclic(entry.element) or not (is_away(q, group, entry.element) or is_behind(q, version)) then return false end
    return true, has_key(q, group)
  end
  if dedup_key and not found and not (group and has_key(q, group)) then
    return not is_home(q, string.sub(dedup_key, -DIGEST_LENGTH)) or is_behind(q, version)
  end
  return not dedup_key and (closed or is_behind(q, version))
end

-- Separate new messages from duplicates, of an earlier call or of another message of this call.
local answer, fresh, old, seen, found, begun, dedup = {}, {}, {}, {}, {}, {}, DEDUP_KEYS - 1
local position, conflicts, replacing, moved, held = 0, 0, 0, {}, {}
if closed and plain > 0 then moved[1] = -1 end
for at = first_option, #ARGV, OPTIONS_STEP do
  local entry = {id = ARGV[at + ID], element = ARGV[at + ELEMENT]}
  entry.delay, entry.window = tonumber(ARGV[at + DELAY]), tonumber(ARGV[at + WINDOW])
  local first, digest = false, ''
  if entry.window > 0 then
    dedup = dedup + 1
    entry.key = KEYS[dedup]
    entry.value = entry.id .. ' ' .. ARGV[at + DIGEST]
    local value = seen[entry.key]
    if not value then
      value = redis.call('GET', entry.key)
      found[entry.key] = value
    end
    seen[entry.key] = value or entry.value
    if value then first, digest = string.match(value, '^(%S+) ?(.*)$') end
  elseif entry.window < 0 then
    dedup = dedup + 1
    entry.burst, entry.group = KEYS[dedup], group_of(entry.element)
    entry.debounce, entry.at_most = entry.delay, tonumber(ARGV[at + DIGEST]) or math.huge
    local older = seen[entry.burst]
    if older == nil then
      older = find_older(q, delayed, index, entry, now)
      found[entry.burst] = older
    end
    if older then entry.older, replacing = older, replacing + 1 end
    local waits = entry.debounce > 0 or begun[entry.burst] or redis.call('HEXISTS', q.active, entry.group) == 1
    seen[entry.burst] = waits and entry.element -- what the next one of this call replaces
    begun[entry.burst] = begun[entry.burst] or not waits
  end
  if q.homes or closed then
    local is_elsewhere, has_others = is_moved(entry, found[entry.key or entry.burst])
    if is_elsewhere then moved[#moved + 1] = position end
    if has_others then held[#held + 1] = position end
  end
  if not first then
    fresh[#fresh + 1] = entry
  elseif not repeated or first ~= entry.id then -- a repeated call finds its own id, which is no duplicate
    local conflict = digest ~= '' and digest ~= ARGV[at + DIGEST]
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
  delete_bodies(q.bodies, {unpack(ARGV, ELEMENTS, first_option - 1)})
  for _, entry in ipairs(fresh) do delete_bodies(q.bodies, {entry.element}) end
end
delete_bodies(q.bodies, old)
if #moved > 0 then
  take_back_bodies()
  return {'moved', now, moved, held}
end
local length, most, unit = refused(q, delayed, plain + #fresh - replacing, function()
  local size = 0
  for at = ELEMENTS, first_option - 1 do size = size + size_of(ARGV[at]) end
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
if q.follows then elements = {unpack(ARGV, ELEMENTS, first_option - 1)} end
local placed = {}
for place, entry in ipairs(fresh) do
  elements[#elements + 1] = entry.element
  placed[place] = entry.element
end
check_entering(q, placed, batches)
remember(producers, producer, sequence, now)
have_entered(q, elements)
for from = ELEMENTS, first_option - 1, 1000 do
  redis.call('LPUSH', q.messages, unpack(ARGV, from, math.min(from + 999, first_option - 1)))
end
local ready, later, together = {}, {}, #fresh > 1 and takes_together(q)
for _, entry in ipairs(fresh) do
  if entry.key then store_dedup(q, entry.key, entry.value, entry.window, now) end
  if entry.delay > 0 and not entry.burst then
    later[#later + 1] = entry
  else
    ready[#ready + 1] = entry.element
    together = together and not entry.burst and entry.delay == 0 and not is_cyclic(entry.element)
  end
end
index_add_together(delayed, index, now, later)
if together then
  enter_together(q, ready, version)
else
  for _, entry in ipairs(fresh) do
    if entry.burst then
      enter_latest(q, delayed, index, entry, now)
    elseif entry.delay < 0 then
      join_line(q, group_of(entry.element), entry.element)
    elseif entry.delay == 0 then
      enter(q, entry.element, version)
    end
  end
end
if plain + #fresh > 0 then redis.call('HINCRBY', q.counters, 'enqueued', plain + #fresh) end
if #answer > 0 then redis.call('HINCRBY', q.counters, 'deduplicated', #answer / 2) end
if conflicts > 0 then redis.call('HINCRBY', q.counters, 'dedup_conflicts', conflicts) end
return {'ok', now, unpack(answer)}
