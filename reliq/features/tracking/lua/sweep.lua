-- sweep: look through a part of one place of a queue for messages that match, and remove them if that is asked for.
--
-- KEYS  places, delayed, index, key, call?
--       key: the list or sorted set that is looked through
--       call: has the ids that this call, or an earlier one of the same cancellation, has removed: then no more is done
-- ARGV  start, most: number, most_bytes: number, removals: number, kind, wanted, headers... [name, value, pair]
--       start: for a list and for `delayed`, how many entries from the newest on are behind; for `waiting`, its last
--       member that is behind, '' = none
--       most: entries to look at; most_bytes: bytes to read; removals: messages to remove at most
--       kind: what must match: id | group | headers
--       wanted: the id, how the group begins, or n headers
--       headers: only for these; pair: both as MessagePack
-- Returns {1 if the end was reached, else 0, where to go on, then for each match: id, how many entries of the list are taken
--         before it (-1 = unknown; a message that a monitor takes to another partition is not removed: its member of
--         `waiting`), glimpse's number, glimpse}. A repeated call returns those that the first has removed, without glimpses,
--         and where that began
-- A removed ready message leaves a blank in its place: to take it out would move all that are in front of it. The next
-- consumer passes over it, or the removal of the last message behind it. Nothing is removed from a processing list: the caller only looks there.
-- uses: now, element, bodies, index, rounds, lanes, partition, homes, follow, place, calls, glimpse, full
-- names of the keys and arguments (tools/generate_scripts.py)
local delayed, index, key, call = KEYS[14], KEYS[15], KEYS[16], KEYS[17]
local start, most, most_bytes, removals = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])
local kind, wanted = ARGV[5], ARGV[6]
local PLACES, HEADERS, HEADERS_STEP, NAME, VALUE, PAIR = 1, 7, 3, 0, 1, 2
-- end of the names
local q = places(PLACES)
local before = answer_before(call)
if before then
  local again = {0, start}
  for id in string.gmatch(before, '%S+') do
    for _, one in ipairs({id, -1, 0, ''}) do again[#again + 1] = one end
  end
  return again
end
redis.call('ZCARD', delayed) -- wrong types are refused here, before the first write
redis.call('HLEN', index)

local decodes = rawget(_G, 'cmsgpack') -- fakeredis (reliq.testing) has none: there the bytes decide alone

local function has_headers(element)
  for at = HEADERS, #ARGV, HEADERS_STEP do
    if not string.find(element, ARGV[at + PAIR], 1, true) then return false end
  end
  if not decodes then return true end
  local readable, _, _, _, _, _, _, _, _, headers = pcall(cmsgpack.unpack_limit, element, 8, 1)
  if not readable or type(headers) ~= 'table' then return false end
  for at = HEADERS, #ARGV, HEADERS_STEP do
    if headers[ARGV[at + NAME]] ~= ARGV[at + VALUE] then return false end
  end
  return true
end

local matches = ({
  id = function(element) return id_of(element) == wanted end,
  group = function(element) return string.sub(group_of(element) or '', 1, #wanted) == wanted end,
  headers = has_headers,
})[kind]

local answer, found, looked, bytes = {}, {}, 0, 0

-- Look at an entry; returns whether to go on. `behind` says how many are taken before it, `place` where it lies.
local function look(element, behind, place)
  looked, bytes = looked + 1, bytes + #element
  if element ~= BLANK and matches(element) then
    if removals > 0 and key == q.waiting and is_stray(place) then
      behind = place
    else
      found[#found + 1] = {element, place}
    end
    local part, size = glimpse(element, 0)
    for _, one in ipairs({id_of(element), behind, size, part}) do answer[#answer + 1] = one end
  end
  return looked < most and bytes < most_bytes and (removals == 0 or #found < removals)
end

local STEP = 50 -- entries read at once: a few large ones are enough

-- Look at a list or at `delayed`, by position; returns whether the end was reached, and how many are behind.
local function through_places(read, behind_all)
  local at = tonumber(start)
  while true do
    local some = redis.call(read, key, at, at + STEP - 1)
    for _, element in ipairs(some) do
      at = at + 1
      if not look(element, behind_all and behind_all - at or -1, at - 1) then return false, at end
    end
    if #some < STEP then return true, at end
  end
end

-- Look at lines; returns whether the end was reached, and the last member. Messages that wait for their flow are in lines of their own,
-- a vertical tab and a number, in front of those of keys.
local function through_lines()
  local last, ranges = start, {{'-', '+'}}
  if kind == 'group' then
    ranges = {{'[' .. wanted, '(' .. wanted .. '\255'}}
    if q.flowing and last < wanted then table.insert(ranges, 1, {'[\v', '(\v\255'}) end
  end
  for at, range in ipairs(ranges) do
    local from = at == 1 and last ~= '' and '(' .. last or range[1]
    repeat
      local some = redis.call('ZRANGEBYLEX', key, from, range[2], 'LIMIT', 0, STEP)
      for _, member in ipairs(some) do
        last = member
        if not look(element_in_line(member), -1, member) then return false, last end
      end
      from = '(' .. last
    until #some < STEP
  end
  return true, last
end

local ended, following
if key == q.waiting then
  ended, following = through_lines()
elseif key == delayed then
  ended, following = through_places('ZREVRANGE')
else
  ended, following = through_places('LRANGE', redis.call('LLEN', key))
end

local MOST_PASSED = 20000 -- places of removed messages that one call takes off the end of a list

-- Take the places at the end of the list away: without a consumer they would stay. Idle consumers wait on `messages`, which
-- is not empty while another list has messages.
local function pass_end()
  if key == q.messages and redis.call('EXISTS', q.high, q.low, q.next_round) > 0 then return end
  local passed, blanks = 0, STEP
  while blanks == STEP and passed < MOST_PASSED do
    local last = redis.call('LRANGE', key, -STEP, -1)
    blanks = 0
    while last[#last - blanks] == BLANK do blanks = blanks + 1 end
    if blanks > 0 then redis.call('LTRIM', key, 0, -1 - blanks) end
    passed = passed + blanks
  end
  if passed > 0 then redis.call('HINCRBY', q.counters, 'blanks_passed', passed) end
end

if removals > 0 and #found > 0 then
  pass_when_full(q.config)
  for _, one in ipairs(found) do -- all of them first: what leaves may make others ready, which moves the places
    if key == q.waiting then
      redis.call('ZREM', key, one[2])
    elseif key == delayed then
      redis.call('ZREM', key, one[1])
      redis.call('HDEL', index, id_of(one[1]))
    else
      redis.call('LSET', key, one[2], BLANK)
    end
  end
  local left, ids = {}, {}
  for place, one in ipairs(found) do
    left[place], ids[place] = one[1], id_of(one[1])
    if key == q.waiting then -- it does not hold its key
      leave_cycle(q, one[1])
      drop_body(q, one[1])
    else
      leave_queue(q, one[1])
    end
  end
  have_left(q, left, 'cancelled')
  answer_with(call, table.concat(ids, ' '))
  redis.call('HINCRBY', q.counters, 'cancelled', #found)
  if key == delayed then
    following = following - #found
  elseif key ~= q.waiting then
    redis.call('HINCRBY', q.counters, 'blanks', #found)
    pass_end()
  end
end
forget_read(bytes)
return {ended and 1 or 0, following, unpack(answer)}
