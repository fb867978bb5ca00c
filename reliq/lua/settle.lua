-- settle: remove messages from processing or move them on, and claim the next messages in the same step.
--
-- KEYS  1-13 places  14 processing  15 lease  16 delayed  17 dead  18 index  19.. marks, in the order of the messages done;
--       then, with results: results, earlier results, awaited, answers
-- ARGV  1 lease ms (0 = do not renew the lease)  2 n to claim  3 room, as for claim
--       4 n acks in a row, from the oldest message of the list on  5 name of the first of them  6 name of the last
--       7 n of them that BLMOVE moved here: they are not yet counted as claimed
--       8 n other acks  9 positions, among all messages that follow, of those that BLMOVE moved here
--       10 ms for which results are kept, 0 = there are none
--       11 batches of the acks in a row, each with its number of them, with blanks between; '?': the caller does not know
--       them, and the script reads them from the messages
--       12.. for each other ack: name, size, place; then for each message that is not acked: name, size, place,
--       destination, counter, id, new element (of one that is done: its result), delay ms, ms that its mark lasts;
--       then, with results, for each ack, those in a row first: id, result
--       The name of a message is its first bytes up to the nonce, so that a body is never sent again; size is that of the
--       whole element; place is where it should be, counted from 0 at the tail: if it is elsewhere, it is searched.
--       destinations: head | tail (of the ready messages), delayed, dead, gone (deleted), done (deleted, and its mark is
--       set, also if the consumer no longer holds the message: it was handled and must not run again),
--       round | rest (for a member of a cycle: head | delayed, after other messages that wait for its key; deleted if the
--       member was removed)
-- Returns {'ok' | 'paused' | 'limited' | 'lost', now, codes, element ...}: codes has one letter per message, in the order of ARGV:
--         d = done, a = already settled (the lease is valid, the message not there), l = lost (no lease); then the
--         claimed elements. {'elsewhere', now}: the acks in a row are not the oldest messages of the list; nothing was
--         done, and the call is to be repeated with their names
-- Refuses to claim as claim does. Removes before it adds: a full Redis can still be emptied.
-- uses: now, element, bodies, index, rounds, renew, lanes, partition, homes, follow, place, take, results
local q, processing, lease, delayed, dead, index = named_places(1), unpack(KEYS, 14, 18)
local lease_ms, limit, room = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])
local row, first_name, last_name, row_uncounted = tonumber(ARGV[4]), ARGV[5], ARGV[6], tonumber(ARGV[7])
local uncounted, results_ms, row_batches = ARGV[9], tonumber(ARGV[10]), ARGV[11]
local ACKS, ACK_FIELDS, MOVE_FIELDS = 12, 3, 9
local acks = tonumber(ARGV[8])
local MOVES = ACKS + ACK_FIELDS * acks
local RESULTS = #ARGV + 1 - (results_ms > 0 and 2 * (row + acks) or 0)
local now = now_ms()

redis.call('LLEN', processing) -- wrong types are refused here, before the first write
redis.call('STRLEN', lease)
check_exits(q)
if limit > 0 then redis.call('LLEN', q.messages) end
if results_ms > 0 then check_results() end
if MOVES < RESULTS then
  redis.call('LLEN', q.messages)
  redis.call('ZCARD', delayed)
  redis.call('ZCARD', dead)
  redis.call('HLEN', index)
  for at = 19, #KEYS - (results_ms > 0 and 4 or 0) do redis.call('STRLEN', KEYS[at]) end
end

local function is_named(element, name)
  return element and string.sub(element, 1, #name) == name
end

-- New messages enter at the head only, so between the first and the last of a row there is nothing else.
if row > 0 and not (is_named(redis.call('LINDEX', processing, -1), first_name)
    and is_named(redis.call('LINDEX', processing, -row), last_name)) then
  return {'elsewhere', now}
end

-- Find a message that is not at its place. The list is read once for all names of one length.
local by_name = {}
local function search(name, size)
  local known = by_name[#name]
  if not known then
    known = {}
    for _, element in ipairs(redis.call('LRANGE', processing, 0, -1)) do
      known[#element .. ' ' .. string.sub(element, 1, #name)] = element
    end
    by_name[#name] = known
  end
  return known[size .. ' ' .. name]
end

local found = {} -- before the first removal, which shifts the places of others
local function find(at)
  local name, size, place = unpack(ARGV, at, at + 2)
  local element = redis.call('LINDEX', processing, -1 - place)
  found[at] = is_named(element, name) and #element == tonumber(size) and element or search(name, size)
end
for at = ACKS, MOVES - 1, ACK_FIELDS do find(at) end
for at = MOVES, RESULTS - 1, MOVE_FIELDS do find(at) end

local alive = lease_ms == '0' and redis.call('EXISTS', lease) == 1 or renew(lease, now + lease_ms)
local codes, acked = {}, row
local results = {} -- id, result, id ...; of messages that are not in the row
local function add_result(id, result)
  if results_ms > 0 and id ~= '' then
    results[#results + 1] = id
    results[#results + 1] = result
  end
end

if row > 0 then
  local known = row_batches ~= '?'
  local looks = q.keyed or q.apart or q.track or q.history or (q.batched and not known)
  local leaving = looks and redis.call('LRANGE', processing, -row, -1) or {}
  redis.call('LTRIM', processing, 0, -1 - row)
  if q.apart then delete_bodies(q.bodies, leaving) end
  for batch, count in string.gmatch(row_batches, '(%S+) (%d+)') do count_batch(q, batch, -count, 0, 0, 0) end
  have_left(q, leaving, 'acked', known)
  if q.keyed then
    for at = #leaving, 1, -1 do release_key(q, leaving[at]) end
  end
  codes[1] = string.rep('d', row)
end

-- Remove a message from the list; returns its element, or nil if it is not there.
local function removed(at)
  local element = found[at]
  if not element or redis.call('LREM', processing, -1, element) == 0 then element = nil end
  codes[#codes + 1] = element and 'd' or alive and 'a' or 'l'
  return element
end

local others = {}
for at = ACKS, MOVES - 1, ACK_FIELDS do
  local element = removed(at)
  if element then
    acked = acked + 1
    others[#others + 1] = element
    if results_ms > 0 then
      local of = RESULTS + 2 * (row + (at - ACKS) / ACK_FIELDS)
      add_result(ARGV[of], ARGV[of + 1])
    end
    if q.keyed then release_key(q, element) end
  end
end
if q.apart then delete_bodies(q.bodies, others) end
have_left(q, others, 'acked')
if acked > 0 then redis.call('HINCRBY', q.counters, 'acked', acked) end

local mark = 18
for at = MOVES, RESULTS - 1, MOVE_FIELDS do
  local destination, counter, id, again, delay, mark_ms = unpack(ARGV, at + 3, at + 8)
  local element = removed(at)
  if destination == 'done' then
    mark = mark + 1
    redis.call('SET', KEYS[mark], '1', 'PX', mark_ms)
  end
  if element then
    if destination == 'round' or destination == 'rest' then
      if is_member(q, element) then
        destination = destination == 'round' and 'head' or 'delayed'
        if pass_on(q, group_of(element)) then leave_round(q, group_of(element)) end
      else
        destination, counter = 'gone', 'cancelled'
      end
    end
    if destination == 'head' then
      place(q, again)
    elseif destination == 'tail' then
      redis.call('RPUSH', q.messages, again)
    elseif destination == 'delayed' then
      if q.keyed and is_member(q, element) then leave_round(q, group_of(element)) end
      if q.keyed and is_laned(element) then release_slot(q, element) end
      index_add(delayed, index, now + delay, id, again)
      note(q, counter, element, delay)
    elseif destination == 'dead' then
      index_add(dead, index, now, id, again)
      redis.call('HINCRBY', q.counters, 'dead_lettered', 1)
      has_died(q, element, counter)
      release_key(q, element)
    else -- gone, done
      leave_queue(q, element)
      if element ~= BLANK then have_left(q, {element}, counter) end
    end
    if destination == 'head' or destination == 'tail' then note(q, counter, element) end
    if destination == 'dead' or counter == 'cancelled' then add_result(id, destination == 'dead' and 'd' or 'c') end
    if destination == 'done' then add_result(id, again) end
    redis.call('HINCRBY', q.counters, counter, 1)
  end
end

if results_ms > 0 and row + #results > 0 then
  begin_results(results_ms, now)
  store_results(ARGV, RESULTS, RESULTS + 2 * row - 1)
  store_results(results, 1, #results)
end
codes = table.concat(codes)
local claimed = row_uncounted
for position in string.gmatch(uncounted, '%d+') do
  if string.sub(codes, row + position, row + position) == 'd' then claimed = claimed + 1 end
end
if claimed > 0 then redis.call('HINCRBY', q.counters, 'claimed', claimed) end
if not alive then return {'lost', now, codes} end
if limit < 1 then return {'ok', now, codes} end
local policy = redis.call('HMGET', q.config, 'paused', 'prioritised', 'round', 'limited')
if policy[1] then return {'paused', now, codes} end
if policy[4] then return {'limited', now, codes} end
return {'ok', now, codes, unpack(take(q, processing, limit, room, policy))}
