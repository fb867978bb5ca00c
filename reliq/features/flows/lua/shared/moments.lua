-- Flows: messages that wait until others have ended. Fields of `followed`:
--   WAITING and the id of a message that waits: its line, for how many it waits, its rule, its flow, and the places of
--     those whose end may be told again; `x` and its flow if it is not to be enqueued any more.
--   MEMBER and the id of a member: its flow, its number and marks, and a line for each message behind it: place, id, and
--     its home if that is another one. A mark is
--       a flow that its handler has opened and that it is to wait for, with a `!` behind it if that stands still because
--       of a dead letter, or a `-` if it has failed;
--       `h`: its handler has ended;
--       `r`: it was said to be dead, which may be told late, when it was redriven and has ended: those that it let go
--       then count it once.
--   NEWS and more: the ring (`ring`) of what has happened to members, for a monitor.
-- `flowing` of config counts the fields of the first two kinds. A message that waits is in `waiting`, in a line of
-- its own: WAITING and a number. Requires `follow`, `element` and `bodies`.
local count_flowing, report_flow, take_from_flow, let_all_go, mark_member, outcome_of, have_ended
makers[#makers + 1] = function()
  local WAITING, MEMBER, NEWS = '\v', '\v\v', '\v\v\v'

  count_flowing = function(q, change)
    if change ~= 0 and redis.call('HINCRBY', q.config, 'flowing', change) <= 0 then redis.call('HDEL', q.config, 'flowing') end
  end

  report_flow = function(q, texts)
    if #texts > 0 then add_note(q.followed, q.config, NEWS, 'flowed', table.concat(texts, '\v')) end
  end

  local function line_of(record)
    local number = string.match(record, '^%d+')
    return number and WAITING .. string.format('%015.0f', number)
  end

  -- Take a message out of its line; nil if it is not there.
  take_from_flow = function(q, record)
    local line = line_of(record)
    local member = line and redis.call('ZRANGEBYLEX', q.waiting, '[' .. line, '(' .. line .. '\255', 'LIMIT', 0, 1)[1]
    if not member then return nil end
    redis.call('ZREM', q.waiting, member)
    return string.sub(member, 2 * GROUP + 1)
  end

  -- Note that a message waits no longer for those at some places before it; returns whether these were the last ones. `again`:
  -- what is told here may be told again, and counts once.
  local function waits_no_more(q, id, record, places, again)
    local line, left, rest, known = string.match(record, '^(%d+) (%d+) (%a %S+)(.*)$')
    if not line then return false end
    for _, place in ipairs(places) do
      local mark = ' ' .. place .. ';'
      if not string.find(known, mark, 1, true) then
        left = left - 1
        if again then known = known .. mark end
      end
    end
    if tonumber(left) <= 0 then return true end
    redis.call('HSET', q.followed, WAITING .. id, table.concat({line, string.format('%d', left), rest}, ' ') .. known)
    return false
  end

  -- Let messages go on in the order in which they were sent. `places`: by id, those before it that have ended.
  let_all_go = function(q, ids, places, again)
    local records, lines = {}, {}
    for from = 1, #ids, 1000 do
      local fields = {}
      for at = from, math.min(from + 999, #ids) do fields[#fields + 1] = WAITING .. ids[at] end
      for at, record in ipairs(redis.call('HMGET', q.followed, unpack(fields))) do
        local id = ids[from + at - 1]
        records[id], lines[id] = record or '', tonumber(string.match(record or '', '^%d+')) or 0
      end
    end
    table.sort(ids, function(one, other) return lines[one] < lines[other] end)
    local gone, fields = {}, {}
    for _, id in ipairs(ids) do
      if waits_no_more(q, id, records[id], places[id], again) then
        gone[#gone + 1], fields[#fields + 1] = records[id], WAITING .. id
      end
    end
    for from = 1, #fields, 1000 do
      redis.call('HDEL', q.followed, unpack(fields, from, math.min(from + 999, #fields)))
    end
    count_flowing(q, -#fields)
    for _, record in ipairs(gone) do
      local element = take_from_flow(q, record)
      if element then enter(q, element) end -- a delayed one is not there yet
    end
  end

  -- Returns what a monitor is to be told of a member that was handled; adds those behind it in this home to `here`.
  local function told_of(record, here)
    local head, behind = string.match(record, '^([^\n]*\n)(.*)$')
    local others = {head}
    for line in string.gmatch(behind, '[^\n]+') do
      local place, id = string.match(line, '^(%d+) (%S+)$')
      if not place then
        others[#others + 1] = line .. '\n'
      else
        if not here[id] then
          here[id] = {}
          here[#here + 1] = id
        end
        here[id][#here[id] + 1] = place
      end
    end
    return table.concat(others)
  end

  -- What a member has come to whose handler has ended: that of the flows that it waits for; nil: one of them runs.
  outcome_of = function(record)
    local outcome = 'acked'
    for mark in string.gmatch(string.match(record, '^%S+ %S+([^\n]*)'), ' %x+([!-]?)') do
      if mark == '' then return nil end
      if mark == '-' then
        outcome = 'cancelled'
      elseif outcome == 'acked' then
        outcome = 'dead'
      end
    end
    return outcome
  end

  local function is_marked(record, mark)
    return string.find(string.match(record, '^[^\n]*') .. ' ', ' ' .. mark .. ' ', 1, true) ~= nil
  end

  -- Mark a member, unless it is marked; returns its record.
  mark_member = function(q, field, record, mark)
    if is_marked(record, mark) then return record end
    record = string.gsub(record, '\n', ' ' .. mark .. '\n', 1)
    redis.call('HSET', q.followed, field, record)
    return record
  end

  -- Note that a member has left the queue. It stays a member while flows that its handler has opened run or stand
  -- still. `ended`: what is told of all members of the call.
  local function end_member(q, id, record, event, ended)
    local field, outcome = MEMBER .. id, event
    if event == 'acked' then
      if redis.call('HEXISTS', q.followed, WAITING .. id) == 1 then return end -- another message with this id was handled
      outcome = outcome_of(record)
    end
    if not outcome or outcome == 'dead' then
      record = mark_member(q, field, record, 'h')
      if not outcome then return end
      record = mark_member(q, field, record, 'r')
    else
      if redis.call('HDEL', q.followed, field) == 0 then return end
      ended.gone = ended.gone + 1
      ended.again = ended.again or is_marked(record, 'r')
      if outcome == 'acked' then record = told_of(record, ended.here) end
    end
    ended.texts[#ended.texts + 1] = outcome .. ' ' .. id .. ' ' .. record
  end

  -- Note members that are in the queue no more.
  have_ended = function(q, ids, event)
    local ended = {here = {}, texts = {}, gone = 0, again = false}
    for from = 1, #ids, 1000 do
      local members, waits = {}, {}
      for at = from, math.min(from + 999, #ids) do
        members[#members + 1], waits[#waits + 1] = MEMBER .. ids[at], WAITING .. ids[at]
      end
      if event ~= 'acked' then ended.gone = ended.gone + redis.call('HDEL', q.followed, unpack(waits)) end
      for at, record in ipairs(redis.call('HMGET', q.followed, unpack(members))) do
        if record then end_member(q, ids[from + at - 1], record, event, ended) end
      end
    end
    count_flowing(q, -ended.gone)
    report_flow(q, ended.texts)
    let_all_go(q, ended.here, ended.here, ended.again)
  end

  -- Tell a monitor of a member that stays.
  local function tell(q, element, event)
    local field = MEMBER .. id_of(element)
    local record = q.flowing and redis.call('HGET', q.followed, field)
    if record then report_flow(q, {event .. ' ' .. id_of(element) .. ' ' .. mark_member(q, field, record, 'r')}) end
  end

  return {
    have_left = function(q, elements, event)
      if q.flowing then have_ended(q, ids_of(elements), event == 'cancelled' and q.skips or event) end
    end,

    have_gone_home = function(q, elements) -- their fields were copied
      if not q.flowing then return end
      local gone = 0
      for _, element in ipairs(elements) do gone = gone + redis.call('HDEL', q.followed, MEMBER .. id_of(element)) end
      count_flowing(q, -gone)
    end,

    are_discarded = function(q, ids)
      if q.flowing then have_ended(q, ids, 'discarded') end
    end,

    has_died = function(q, element) tell(q, element, 'dead') end,
    has_revived = function(q, element) tell(q, element, 'revived') end,

    holds_back = function(q, element)
      local record = redis.call('HGET', q.followed, WAITING .. id_of(element))
      if not record then return false end
      local line = line_of(record)
      if line then
        line = line .. string.format('%016.0f', redis.call('HINCRBY', q.counters, 'ordered', 1))
        redis.call('ZADD', q.waiting, 0, line .. element)
        track(q, element, line)
      else
        if q.apart then delete_bodies(q.bodies, {element}) end
        have_left(q, {element}, 'cancelled')
        redis.call('HINCRBY', q.counters, 'cancelled', 1)
      end
      return true
    end,
  }
end
