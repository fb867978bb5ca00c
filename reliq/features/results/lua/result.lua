-- result: read the result of a message, or note that someone waits for it.
--
-- KEYS  outcomes
-- ARGV  id, wait: number
--       wait: ms for which the caller will, 0 = it does not
-- Returns {result}; without one {nil, id of the latest entry of answers}: an entry after it names the message once it has one
-- uses: results
-- names of the keys and arguments (tools/generate_scripts.py)
local id, wait = ARGV[1], tonumber(ARGV[2])
-- end of the names
local q = last_outcomes()
check_results()
local result = redis.call('HGET', q.results, id) or redis.call('HGET', q.earlier_results, id)
if result then return {result} end
if wait > 0 and redis.call('PTTL', q.awaited) < wait then redis.call('SET', q.awaited, '1', 'PX', wait) end
local latest = redis.call('XREVRANGE', q.answers, '+', '-', 'COUNT', 1)[1]
return {false, latest and latest[1] or '0-0'}
