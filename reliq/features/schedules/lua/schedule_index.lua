-- schedule_index: note which queues have schedules, where that still is what the caller has read.
--
-- KEYS  owners
-- ARGV  changes... [name, expected, queue]
--       expected: the queue that the caller has read, '' = none
--       queue: '' = none
-- Returns for each 1 = noted, 2 = it was so already, 0 = it is another queue
-- names of the keys and arguments (tools/generate_scripts.py)
local owners = KEYS[1]
local CHANGES, CHANGES_STEP, NAME, EXPECTED, QUEUE = 1, 3, 0, 1, 2
-- end of the names
local OTHER, NOTED, SAME = 0, 1, 2
local answer = {}
for at = CHANGES, #ARGV, CHANGES_STEP do
  local name, queue = ARGV[at + NAME], ARGV[at + QUEUE]
  local owner = redis.call('HGET', owners, name) or ''
  if owner == queue then
    answer[#answer + 1] = SAME
  elseif owner ~= ARGV[at + EXPECTED] then
    answer[#answer + 1] = OTHER
  else
    if queue == '' then redis.call('HDEL', owners, name) else redis.call('HSET', owners, name, queue) end
    answer[#answer + 1] = NOTED
  end
end
return answer
