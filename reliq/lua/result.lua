-- result: read the result of a message, or note that someone waits for it.
--
-- KEYS  1 results  2 earlier results  3 awaited  4 answers
-- ARGV  1 id  2 ms for which the caller will wait, 0 = it does not
-- Returns {result}; without one {nil, id of the latest entry of answers}: an entry after it names the message once it has one
-- uses: results
local results, earlier, awaited, answers = results_keys()
check_results()
local result = redis.call('HGET', results, ARGV[1]) or redis.call('HGET', earlier, ARGV[1])
if result then return {result} end
local wait = tonumber(ARGV[2])
if wait > 0 and redis.call('PTTL', awaited) < wait then redis.call('SET', awaited, '1', 'PX', wait) end
local latest = redis.call('XREVRANGE', answers, '+', '-', 'COUNT', 1)[1]
return {false, latest and latest[1] or '0-0'}
