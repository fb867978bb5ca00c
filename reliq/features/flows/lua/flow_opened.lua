-- flow_opened: tell a member of a flow what has become of another flow, which its handler has opened. What was told before changes nothing.
--
-- KEYS  places
-- ARGV  id, opened, outcome
--       opened: the id of the other flow
--       outcome: open, dead (it stands still), cancelled (a part of it has failed), acked (also: nobody waits for it any more)
-- Returns 1, or 0 if the message does not wait for that flow
-- uses: now, element, bodies, rounds, lanes, partition, homes, follow, place, full, flow_fields
-- names of the keys and arguments (tools/generate_scripts.py)
local id, opened, outcome = ARGV[1], ARGV[2], ARGV[3]
local PLACES = 1
-- end of the names
make_parts()
local q = places(PLACES)
local MARKS = {open = '', dead = '!', cancelled = '-'}
local field = member_field(id)
local record = redis.call('HGET', q.followed, field) -- a wrong type is refused here, before the first write
local head, behind = string.match(record or '', '^([^\n]*)(\n.*)$')
if not head or not string.find(head, ' ' .. opened, 1, true) then return 0 end
local before = outcome_of(record)
record = string.gsub(head, ' ' .. opened .. '[!-]?', MARKS[outcome] and ' ' .. opened .. MARKS[outcome] or '', 1) .. behind
pass_when_full(q.followed)
redis.call('HSET', q.followed, field, record)
if not string.find(head .. ' ', ' h ', 1, true) then return 1 end
local after = outcome_of(record)
if after == 'acked' or after == 'cancelled' then
  have_ended(q, {id}, 'acked')
elseif after ~= before then
  report_flow(q, {(after or 'revived') .. ' ' .. id .. ' ' .. mark_member(q, field, record, 'r')})
end
return 1
