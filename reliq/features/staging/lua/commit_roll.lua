-- commit_roll: move the first chunk of a committed part into the queue. Safe to repeat and to run concurrently.
-- For chunks that a script must place, and when memory is full; other chunks use a MULTI (ops.roll), in half the time.
--
-- KEYS  staged, places, delayed, dead, index, dedup_keys...
--       dedup_keys: of the chunk's messages, in their order
-- ARGV  elsewhere...
--       elsewhere: for each of these keys, what another home of it knows of the first message ('' = nothing); or none
-- Returns {n moved, n chunks left, n of them deduplicated}; or {-1, n chunks left, 0}: the dedup keys are not those of the first chunk, nothing moved
-- A chunk is a RESP array of elements; a RESP map of place to element; or, marked by '=', an array of references and bodies.
-- A place is the delay in ms; after it, for a message with a dedup key: window in ms, SHA-256 of the key, digest of the
-- body; or it is 'dead': an invalid row. Removes before it adds. Uses LTRIM because LPOP would copy the chunk into its reply.
-- uses: now, element, bodies, index, letters, rounds, lanes, partition, homes, follow, place, dedup
-- names of the keys and arguments (tools/generate_scripts.py)
local staged, delayed, dead, index = KEYS[1], KEYS[15], KEYS[16], KEYS[17]
local PLACES, DEDUP_KEYS, ELSEWHERE = 2, 18, 1
-- end of the names
local q = places(PLACES)
local chunk = redis.call('LINDEX', staged, 0)
if not chunk then return {0, 0, 0} end

local kind, count, at = string.match(chunk, '^([*%%=])(%d+)\r\n()')
local function next_string()
  local length, start = string.match(chunk, '^%$(%d+)\r\n()', at)
  at = start + length + 2
  return string.sub(chunk, start, start + length - 1)
end

-- Read the whole chunk: undecodable chunks and wrong types are refused here, before the first write.
local strings, entries, duplicates, first_ids, dedup, conflicts = {}, {}, {}, {}, DEDUP_KEYS - 1, 0
for _ = 1, count do
  local place = kind == '%' and next_string() or '0'
  local element = next_string()
  local entry = {element = element, dies = place == 'dead'}
  local delay, window, sha, digest = string.match(place, '^(%d+) ?(%d*) ?(%x*) ?(%x*)$')
  entry.delay = tonumber(delay or 0)
  local first
  if sha and sha ~= '' then
    dedup = dedup + 1
    entry.key, entry.window, entry.value = KEYS[dedup], window, id_of(element) .. ' ' .. digest
    if string.sub(entry.key or '', -#sha) ~= sha then return {-1, redis.call('LLEN', staged), 0} end
    local known = ARGV[ELSEWHERE + dedup - DEDUP_KEYS]
    first = first_ids[sha] or redis.call('GET', entry.key) or (known ~= '' and known)
    first_ids[sha] = first or entry.value
  end
  if not first then
    entries[#entries + 1] = entry
  else
    duplicates[#duplicates + 1] = element
    local of_first = string.match(first, '^%S+ (.+)$')
    if of_first and of_first ~= digest then conflicts = conflicts + 1 end
  end
  strings[#strings + 1] = element
end
redis.call('ZCARD', delayed)
redis.call('ZCARD', dead)
redis.call('HLEN', index)

local entered = {}
for place, entry in ipairs(entries) do entered[place] = entry.element end
check_entering(q, entered)
redis.call('LTRIM', staged, 1, -1)
if kind == '=' then
  for from = 1, #strings, 1000 do
    redis.call('HSET', q.bodies, unpack(strings, from, math.min(from + 999, #strings)))
  end
  return {0, redis.call('LLEN', staged), 0}
end
delete_bodies(q.bodies, duplicates)
local now = now_ms()
have_entered(q, entered)
for _, entry in ipairs(entries) do
  if entry.key then store_dedup(q, entry.key, entry.value, tonumber(entry.window), now) end
  if entry.dies then
    index_add(dead, index, now, letter_field(id_of(entry.element)), entry.element)
    redis.call('HINCRBY', q.counters, 'dead_lettered', 1)
    redis.call('HINCRBY', q.counters, 'dead:invalid', 1)
    has_died(q, entry.element, 'dead:invalid')
  elseif entry.delay > 0 then
    index_add(delayed, index, now + entry.delay, id_of(entry.element), entry.element)
  elseif kind == '%' then
    enter(q, entry.element)
  end
end
if kind == '*' then redis.call('LPUSH', q.messages, unpack(strings)) end
if #entries > 0 then redis.call('HINCRBY', q.counters, 'enqueued', #entries) end
if #duplicates > 0 then redis.call('HINCRBY', q.counters, 'deduplicated', #duplicates) end
if conflicts > 0 then redis.call('HINCRBY', q.counters, 'dedup_conflicts', conflicts) end
return {tonumber(count), redis.call('LLEN', staged), #duplicates}
