-- emit: append a chunk to the output of a message, if its consumer still holds the message.
--
-- KEYS  followed, config, output, outputs, lease, processing
-- ARGV  id, name, position, nonce, token, chunk, most: number, most_bytes: number
--       name, position: of the element, as name and place for report
--       token: of the call: one that is repeated at once appends nothing. Those of a handler are numbered, '#handler.number': none
--       of them appends twice, whenever and in which order they arrive
--       most, most_bytes: chunks of a message and their bytes, at most
-- Returns 'ok'; 'lost': the consumer does not hold the message; 'full': it has emitted so much. Then nothing was stored
-- uses: held, heads, keep, tokens
-- names of the keys and arguments (tools/generate_scripts.py)
local followed, config, output, outputs, lease, processing = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6]
local id, name, position, nonce, token, chunk = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5], ARGV[6]
local most, most_bytes = tonumber(ARGV[7]), tonumber(ARGV[8])
-- end of the names
if redis.call('STRLEN', lease) == 0 or not held_element(processing, name, position) then return 'lost' end
local head = redis.call('HGET', followed, head_field(id))
local count, bytes, run, former, latest, kept_at = string.match(head or '0 0 0 - - 0', '^(%d+) (%d+) (%d+) (%S+) (%S+) (%d+)')
token = unseen(latest, token)
if not token then return 'ok' end
if count + 1 > most or bytes + #chunk > most_bytes then return 'full' end
local kept = kept_ms(config) -- wrong types are refused here, before the first write
redis.call('STRLEN', outputs)
if not head and redis.call('XLEN', output) > 0 then redis.call('UNLINK', output) end -- of another message, which had the same id
if former ~= nonce then run = string.format('%d', run + 1) end
local at = string.match(redis.call('XADD', output, '*', 'run', run, 'chunk', chunk), '^%d+')
if at - kept_at > kept / 50 then -- not at each chunk
  keep_for(kept * 1.02, output, outputs)
  kept_at = at
end
local text = table.concat({count + 1, bytes + #chunk, run, nonce, token, kept_at, 'open'}, ' ')
write_head(followed, config, id, text, not head)
return 'ok'
