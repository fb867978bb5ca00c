-- flow_note: note members of a flow, and who waits for each of them. They are enqueued before, and wait for the flow: what is
-- told of a member later is known to be of this flow.
--
-- KEYS  followed, config, flows, producers, brought?
--       brought: exists once a message from another partition has entered: then nothing is stored
-- ARGV  flow, step: number, members... [id, member, behind]
--       flow, step: as for flow_wait; empty and 0 where a monitor brings members
--       member: its flow and its number
--       behind: a line for each message that waits for it: its place there, its id, and its home if that is another one
-- Returns the ids of which another flow has a message; those of this flow that are noted are passed over
-- uses: now, producers, element, follow, flow_fields
-- names of the keys and arguments (tools/generate_scripts.py)
local followed, config, flows, producers, brought = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local flow, step = ARGV[1], tonumber(ARGV[2])
local MEMBERS, MEMBERS_STEP, ID, MEMBER, BEHIND = 3, 3, 0, 1, 2
-- end of the names
make_parts()
if brought and redis.call('GET', brought) then return {} end
local q = {followed = followed, config = config}
redis.call('HLEN', config) -- wrong types are refused here, before the first write
redis.call('HLEN', followed)
redis.call('STRLEN', flows)
redis.call('HLEN', producers)
local producer = flow ~= '' and 'flow-' .. flow or ''
local late = carried_out(producers, producer, step)
if not late then redis.call('SET', flows, '1') end
local others, texts, noted = {}, {}, 0
for at = MEMBERS, #ARGV, MEMBERS_STEP do
  local id, text = ARGV[at + ID], ARGV[at + MEMBER] .. '\n' .. ARGV[at + BEHIND]
  local record = redis.call('HGET', followed, member_field(id))
  if record then
    if string.match(record, '^%S+ %S+') ~= string.match(ARGV[at + MEMBER], '^%S+ %S+') then others[#others + 1] = id end
  elseif not late and flow ~= '' and redis.call('HEXISTS', followed, waits_field(id)) == 0 then
    texts[#texts + 1] = 'cancelled ' .. id .. ' ' .. text -- meanwhile: while a flow is sent, all wait
  elseif not late then
    redis.call('HSET', followed, member_field(id), text)
    noted = noted + 1
  end
end
count_flowing(q, noted)
report_flow(q, texts)
if not late then remember(producers, producer, step, now_ms()) end
return others
