-- flow_wait: note messages of a flow that are to wait for others, before they are enqueued.
--
-- KEYS  followed, config, counters, flows, producers
-- ARGV  flow, step: number, waiting... [id, count, rule]
--       step: the number of the call that sends the flow; one that was carried out, or that comes after a later one, notes nothing
--       count: of those that it waits for
--       rule: the first letter of what it does when one of them fails: f(ail), s(kip), r(un)
-- Returns the ids of which another flow has a message; those of this flow that are noted are passed over, also as members: then
-- the call is late, and they are enqueued
-- uses: now, producers, flow_fields
-- names of the keys and arguments (tools/generate_scripts.py)
local followed, config, counters, flows, producers = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local flow, step = ARGV[1], tonumber(ARGV[2])
local WAITING, WAITING_STEP, ID, COUNT, RULE = 3, 3, 0, 1, 2
-- end of the names
redis.call('HLEN', followed) -- wrong types are refused here, before the first write
redis.call('HLEN', config)
redis.call('HLEN', counters)
redis.call('STRLEN', flows)
redis.call('HLEN', producers)
local late = carried_out(producers, 'flow-' .. flow, step)
if not late then redis.call('SET', flows, '1') end
local others, noted = {}, 0
for at = WAITING, #ARGV, WAITING_STEP do
  local id = ARGV[at + ID]
  local field = waits_field(id)
  local record, member = unpack(redis.call('HMGET', followed, field, member_field(id)))
  if member then
    if string.match(member, '^%S+') ~= flow then others[#others + 1] = id end
  elseif not record and not late then
    local line = string.format('%.0f', redis.call('HINCRBY', counters, 'ordered', 1))
    redis.call('HSET', followed, field, table.concat({line, ARGV[at + COUNT], ARGV[at + RULE], flow}, ' '))
    noted = noted + 1
  elseif record and string.match(record, '^%d+ %d+ %a (%S+)') ~= flow then
    others[#others + 1] = id
  end
end
if noted > 0 then redis.call('HINCRBY', config, 'flowing', noted) end
if not late then remember(producers, 'flow-' .. flow, step, now_ms()) end
return others
