-- settle: remove messages from processing or move them on, and claim the next messages in the same step.
--
-- KEYS  places, processing, lease, delayed, dead, index, told, slots, marks..., rates?, outcomes?
--       marks: in the order of the messages done
--       rates: if some messages were not started
--       outcomes: with results
-- ARGV  lease_ms, limit: number, room: number, row: number, first_name, last_name, row_uncounted: number, ack_count: number,
--       uncounted, not_started, results_ms: number, row_batches, acks... [name, size, place],
--       moves... [name, size, place, destination, counter, id, again, delay, mark_ms, sent], results... [result_id, result]
--       limit: n to claim, -1 = `claim_limited` does it at once; lease_ms, room: as for claim
--       row: n acks in a row, from the oldest message of the list on
--       first_name, last_name: of the first and the last of them
--       row_uncounted: n of them that BLMOVE moved here: they are not yet counted as claimed
--       ack_count: n other acks
--       uncounted: positions, among all messages that follow, of those that BLMOVE moved here
--       not_started: positions, among the moves, of messages that were not: the rates get back what their claim took
--       results_ms: ms for which results are kept, 0 = there are none
--       row_batches: batches of the acks in a row, each with its number of them, with blanks between; '?': the caller does
--       not know them, and the script reads them from the messages
--       acks: the other ones
--       moves: the messages that are not acked; again: the new element, of one that is done: its result, of one that is
--       gone: what is stored in place of one, unless its id has one, as when it was handled before and came again;
--       mark_ms: ms that its mark lasts; sent: ms at which a message was sent that goes back to the queue, else ''; one
--       that was cancelled while it was held is deleted
--       results: for each ack, those in a row first
--       name: its first bytes up to the nonce, so that a body is never sent again; size: of
--       the whole element; place: where it should be, counted from 0 at the tail: if it is elsewhere, it is searched.
--       destination: head | tail (of the ready messages), delayed, dead, gone (deleted), done (deleted, and its mark
--       is set and its result stored, also if the consumer no longer holds the message: it was handled and must not run
--       again),
--       round | rest (for a member of a cycle: head | delayed, after other messages that wait for its key; deleted if
--       the member was removed)
-- Returns {'ok' | 'paused' | 'limited' | 'lost', now, codes, element ...}: codes has one letter per message, in the order of ARGV:
--         d = done, c = cancelled, and so deleted, a = already settled (the lease is valid, the message not there),
--         l = lost (no lease); then the claimed elements. {'elsewhere', now}: the acks in a row are not the oldest messages of the list; nothing was
--         done, and the call is to be repeated with their names
-- Refuses to claim as claim does. Removes before it adds: a full Redis can still be emptied.
-- uses: now, element, bodies, index, letters, rounds, renew, lanes, partition, homes, follow, place, take, holders, results, flow
-- names of the keys and arguments (tools/generate_scripts.py)
local processing, lease, delayed, dead, index, told = KEYS[14], KEYS[15], KEYS[16], KEYS[17], KEYS[18], KEYS[19]
local lease_ms, limit, room, row = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])
local first_name, last_name, row_uncounted, ack_count = ARGV[5], ARGV[6], tonumber(ARGV[7]), tonumber(ARGV[8])
local uncounted, not_started, results_ms, row_batches = ARGV[9], ARGV[10], tonumber(ARGV[11]), ARGV[12]
local PLACES, SLOTS, MARKS, ACKS, ACKS_STEP, NAME, SIZE, PLACE, MOVES_STEP = 1, 20, 22, 13, 3, 0, 1, 2, 10
local DESTINATION, COUNTER, ID, AGAIN, DELAY, MARK_MS, SENT, RESULTS_STEP, RESULT_ID = 3, 4, 5, 6, 7, 8, 9, 2, 0
local RESULT = 1
-- end of the names
local q, slots = named_places(PLACES), named_slots(SLOTS)
local MOVES = ACKS + ACKS_STEP * ack_count
local RESULTS = #ARGV + 1 - (results_ms > 0 and RESULTS_STEP * (row + ack_count) or 0)
local last_key = #KEYS - (results_ms > 0 and OUTCOMES_SIZE or 0)
local rates = not_started ~= '' and named_rates(last_key - RATES_SIZE + 1)
local now = now_ms()

local length = redis.call('LLEN', processing) -- wrong types are refused here, before the first write
local alive = is_leased(lease)
check_exits(q)
check_slots(q, slots)
if limit > 0 then redis.call('LLEN', q.messages) end
if results_ms > 0 then check_results() end
if MOVES < RESULTS then
  redis.call('LLEN', q.messages)
  redis.call('ZCARD', delayed)
  redis.call('ZCARD', dead)
  redis.call('HLEN', index)
  redis.call('HLEN', told)
  if rates then
    redis.call('HLEN', rates.flow)
    redis.call('ZCARD', rates.buckets)
  end
  for at = MARKS, last_key - (rates and RATES_SIZE or 0) do redis.call('STRLEN', KEYS[at]) end
end

local found, behind = {}, {} -- before the first removal; behind: how many newer ones are in front of it in the list
do
  local function is_named(element, name)
    return element and string.sub(element, 1, #name) == name
  end

  -- New messages enter at the head only, so between the first and the last of a row there is nothing else.
  if row > 0 and not (is_named(redis.call('LINDEX', processing, -1), first_name)
      and (row == 1 or is_named(redis.call('LINDEX', processing, -row), last_name))) then
    return {'elsewhere', now}
  end

  -- Find a message that is not at its place. The list is read once for all names of one length.
  local by_name = {}
  local function search(name, size)
    local known = by_name[#name]
    if not known then
      known = {}
      for place, element in ipairs(redis.call('LRANGE', processing, 0, -1)) do
        known[#element .. ' ' .. string.sub(element, 1, #name)] = {element, place - 1}
      end
      by_name[#name] = known
    end
    return unpack(known[size .. ' ' .. name] or {})
  end

  local function find(at)
    local name, size, place = ARGV[at + NAME], ARGV[at + SIZE], ARGV[at + PLACE]
    local element = redis.call('LINDEX', processing, -1 - place)
    if is_named(element, name) and #element == tonumber(size) then
      found[at], behind[at] = element, length - 1 - place
    else
      found[at], behind[at] = search(name, size)
    end
  end
  for at = ACKS, MOVES - 1, ACKS_STEP do find(at) end
  for at = MOVES, RESULTS - 1, MOVES_STEP do find(at) end
end

if alive then renew(lease, now, lease_ms) end
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
  local looks = q.keyed or q.apart or q.track or q.history_for or q.recorded or q.emitted or q.flowing or (q.batched and not known)
  local leaving = looks and redis.call('LRANGE', processing, -row, -1) or {}
  redis.call('LTRIM', processing, 0, -1 - row)
  if q.apart then delete_bodies(q.bodies, leaving) end
  if q.keyed then
    for at = #leaving, 1, -1 do release_key(q, leaving[at]) end
  end
  have_left(q, leaving, 'acked', known and row_batches)
  codes[1] = string.rep('d', row)
end

-- Remove a message from the list; returns its element, or nil if it is not there. LREM looks through the list for each; of
-- several ones the places are marked, which all of them leave together.
local SETTLED = '\193settled' -- no element
local several, marked = (MOVES - ACKS) / ACKS_STEP + (RESULTS - MOVES) / MOVES_STEP > 4, {}
if several then redis.call('PERSIST', processing) end -- a write that needs no memory: a full Redis accepts the others
local function removed(at)
  local element, place = found[at], behind[at]
  if element and several then
    if marked[place] then element = nil else redis.call('LSET', processing, place, SETTLED) end
    marked[place] = true
  elseif element and redis.call('LREM', processing, -1, element) == 0 then
    element = nil
  end
  codes[#codes + 1] = element and 'd' or alive and 'a' or 'l'
  return element
end

do
  local others = {}
  for at = ACKS, MOVES - 1, ACKS_STEP do
    local element = removed(at)
    if element then
      acked = acked + 1
      others[#others + 1] = element
      if results_ms > 0 then
        local of = RESULTS + RESULTS_STEP * (row + (at - ACKS) / ACKS_STEP)
        add_result(ARGV[of + RESULT_ID], ARGV[of + RESULT])
      end
      if q.keyed then release_key(q, element) end
    end
  end
  if q.apart then delete_bodies(q.bodies, others) end
  have_left(q, others, 'acked')
end
if acked > 0 then redis.call('HINCRBY', q.counters, 'acked', acked) end

local gets_back = {}
local refund = rates and refund_to(rates, q.config)
for position in string.gmatch(not_started, '%d+') do gets_back[MOVES + MOVES_STEP * (position - 1)] = true end

local mark = MARKS - 1
for at = MOVES, RESULTS - 1, MOVES_STEP do
  local destination, counter, id = ARGV[at + DESTINATION], ARGV[at + COUNTER], ARGV[at + ID]
  local again, element = ARGV[at + AGAIN], removed(at)
  if destination == 'done' then
    mark = mark + 1
    if element or redis.call('EXISTS', KEYS[mark]) == 0 then add_result(id, again) end -- else another run's is there
    redis.call('SET', KEYS[mark], '1', 'PX', ARGV[at + MARK_MS])
  end
  if element then
    if gets_back[at] then refund(group_of(element), cost_of(element)) end
    if ARGV[at + SENT] ~= '' and tonumber(ARGV[at + SENT]) <= tonumber(redis.call('HGET', told, id) or -1) then
      destination, counter, codes[#codes] = 'gone', 'cancelled', 'c'
    end
    if destination == 'round' or destination == 'rest' then
      if is_member(q, element) then
        destination = destination == 'round' and 'head' or 'delayed'
        was_visited(q, element)
        if pass_on(q, group_of(element)) then leave_round(q, group_of(element)) end
      else
        destination, counter = 'gone', 'cancelled'
      end
    end
    if destination == 'head' then
      put_back(q, again)
    elseif destination == 'tail' then
      retake_slot(q, element)
      redis.call('RPUSH', q.messages, again)
    elseif destination == 'delayed' then
      if q.keyed and is_member(q, element) then leave_round(q, group_of(element)) end
      if q.keyed and is_laned(element) then release_slot(q, element) end
      index_add(delayed, index, now + ARGV[at + DELAY], id, again)
      note(q, counter, element, ARGV[at + DELAY])
    elseif destination == 'dead' then
      index_add(dead, index, now, letter_field(id), again)
      redis.call('HINCRBY', q.counters, 'dead_lettered', 1)
      has_died(q, element, counter)
      release_key(q, element)
    else -- gone, done
      leave_queue(q, element)
      if element ~= BLANK then have_left(q, {element}, counter) end
    end
    if destination == 'head' or destination == 'tail' then note(q, counter, element) end
    if destination == 'dead' or counter == 'cancelled' then
      add_result(id, destination == 'dead' and 'd' or 'c')
    elseif destination == 'gone' and again ~= '' and results_ms > 0 and not has_returned(id) then
      add_result(id, again)
    end
    redis.call('HINCRBY', q.counters, counter, 1)
  end
end

if several then redis.call('LREM', processing, 0, SETTLED) end
note_held(q, slots, processing, limit < 0)
if results_ms > 0 and row + #results > 0 then
  begin_results(results_ms, now)
  store_results(ARGV, RESULTS, RESULTS + RESULTS_STEP * row - 1)
  store_results(results, 1, #results)
end
codes = table.concat(codes)
local claimed = row_uncounted
for position in string.gmatch(uncounted, '%d+') do
  if string.find(codes, '^[dc]', row + position) then claimed = claimed + 1 end
end
if claimed > 0 then redis.call('HINCRBY', q.counters, 'claimed', claimed) end
if not alive then return {'lost', now, codes} end
if limit < 1 then return {'ok', now, codes} end
if q.paused then return {'paused', now, codes} end
if q.limited then return {'limited', now, codes} end
return {'ok', now, codes, unpack(take(q, processing, limit, room))}
