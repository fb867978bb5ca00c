-- fates: where the messages with some ids are, as far as a bounded read shows it.
--
-- KEYS  places, delayed, dead, index, receipts, parked, lists...
--       lists: processing lists
-- ARGV  most: number, ids...
--       most: messages to read of each list, the newest ones
-- Returns for each id 'dead', 'delayed', 'parked', 'processing', 'ready'; 'gone' = it is not in the queue; 'unknown' = a list is
--         longer than what was read of it
-- uses: now, element, letters, bodies, rounds, lanes, partition, homes, follow, place
-- names of the keys and arguments (tools/generate_scripts.py)
local delayed, dead, index, receipts, parked = KEYS[14], KEYS[15], KEYS[16], KEYS[17], KEYS[18]
local most = tonumber(ARGV[1])
local PLACES, LISTS, IDS = 1, 19, 2
-- end of the names
local q = places(PLACES)
local wanted, complete = {}, true
for at = IDS, #ARGV do wanted[ARGV[at]] = false end

local function note(element, fate)
  local id = id_of(element)
  if wanted[id] == false then wanted[id] = fate end
end

local function read(list, fate)
  for _, element in ipairs(redis.call('LRANGE', list, 0, most - 1)) do note(element, fate) end
  if redis.call('LLEN', list) > most then complete = false end
end

for at = LISTS, #KEYS do read(KEYS[at], 'processing') end
for _, list in ipairs({q.messages, q.high, q.low, q.next_round}) do read(list, 'ready') end
for _, member in ipairs(redis.call('ZRANGE', q.waiting, 0, most - 1)) do note(element_in_line(member), 'ready') end
if redis.call('ZCARD', q.waiting) > most then complete = false end

local answer = {}
for at = IDS, #ARGV do
  local id = ARGV[at]
  for fate, hash in pairs({processing = receipts, parked = parked}) do -- in flight is in processing, without a consumer
    if redis.call('HEXISTS', hash, id) == 1 then wanted[id] = fate end
  end
  local scores = wanted[id] and {} or redis.call('HMGET', index, unpack(letter_fields(id))) -- a hint: what it says is verified
  for _, score in ipairs(scores) do
    for fate, zset in pairs(score and {delayed = delayed, dead = dead} or {}) do
      for _, element in ipairs(redis.call('ZRANGEBYSCORE', zset, score, score, 'LIMIT', 0, most)) do note(element, fate) end
    end
  end
  answer[#answer + 1] = wanted[id] or (complete and 'gone' or 'unknown')
end
return answer
