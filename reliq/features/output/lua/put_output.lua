-- put_output: store chunks of a message that a monitor is about to enqueue here, from another partition. Those that are there are
-- passed over.
--
-- KEYS  followed, config, output, outputs, brought
-- ARGV  id, head, first, chunks... [chunk_id, run, chunk]
--       brought: exists once the message has entered: then its output is its own, and nothing is stored
--       first: the id of the first chunk of all; '' = there are none any more
-- Returns how many are new
-- uses: heads, keep
-- names of the keys and arguments (tools/generate_scripts.py)
local followed, config, output, outputs, brought = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local id, head, first = ARGV[1], ARGV[2], ARGV[3]
local CHUNKS, CHUNKS_STEP, CHUNK_ID, RUN, CHUNK = 4, 3, 0, 1, 2
-- end of the names
redis.call('STRLEN', outputs) -- wrong types are refused here, before the first write
redis.call('HLEN', config)
local is_new = redis.call('HEXISTS', followed, head_field(id)) == 0
if redis.call('GET', brought) then return 0 end
local there = redis.call('XRANGE', output, '-', '+', 'COUNT', 1)[1]
if there and there[1] ~= first then -- of another message with the same id
  if not is_new then return 0 end
  redis.call('UNLINK', output)
end
local latest = redis.call('XREVRANGE', output, '+', '-', 'COUNT', 1)[1]

local function is_after(one, other)
  local ms, number = string.match(one, '^(%d+)-(%d+)$')
  local other_ms, other_number = string.match(other, '^(%d+)-(%d+)$')
  return tonumber(ms) > tonumber(other_ms) or ms == other_ms and tonumber(number) > tonumber(other_number)
end

local added = 0
for at = CHUNKS, #ARGV, CHUNKS_STEP do
  if not latest or is_after(ARGV[at + CHUNK_ID], latest[1]) then
    redis.call('XADD', output, ARGV[at + CHUNK_ID], 'run', ARGV[at + RUN], 'chunk', ARGV[at + CHUNK])
    added = added + 1
  end
end
keep_for(kept_ms(config), output, outputs)
write_head(followed, config, id, head, is_new)
return added
