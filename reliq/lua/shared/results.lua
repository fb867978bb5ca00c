-- What handlers have returned, by message id, in the last four keys of a call. Results are kept in two hashes: when the first
-- of `results` is older than they are to be kept, that hash becomes the earlier one, and the one before it is deleted. So
-- a result is kept for between one and two times as long.
-- names of the keys and arguments (tools/generate_scripts.py)
local function named_outcomes(at) -- types not checked
  return {
    results = KEYS[at], earlier_results = KEYS[at + 1], awaited = KEYS[at + 2], answers = KEYS[at + 3],
  }
end
local OUTCOMES_SIZE = 4
-- end of the names

local RESULTS_BEGUN = '' -- the field of `results` with the ms of its first result

local function last_outcomes()
  return named_outcomes(#KEYS - OUTCOMES_SIZE + 1)
end

-- Fail before the first write if a key has a foreign type.
local function check_results()
  local q = last_outcomes()
  redis.call('HLEN', q.results)
  redis.call('HLEN', q.earlier_results)
  redis.call('STRLEN', q.awaited)
  redis.call('XLEN', q.answers)
end

-- Begin to store results: those that are too old become the earlier ones.
local function begin_results(kept_ms, now)
  local q = last_outcomes()
  local results, earlier = q.results, q.earlier_results
  local begun = redis.call('HGET', results, RESULTS_BEGUN)
  if begun and now - begun > kept_ms then
    redis.call('UNLINK', earlier)
    redis.call('RENAME', results, earlier)
    begun = false
  end
  if not begun then redis.call('HSET', results, RESULTS_BEGUN, now) end
  redis.call('PEXPIRE', results, 2 * kept_ms)
end

-- Store results, and tell those who wait for one. `some` has them from `first` to `last`: id, result, id ...
local function store_results(some, first, last)
  local q = last_outcomes()
  for from = first, last, 1000 do
    redis.call('HSET', q.results, unpack(some, from, math.min(from + 999, last)))
  end
  if last < first or redis.call('EXISTS', q.awaited) == 0 then return end
  local ids = {}
  for at = first, last, 2 do ids[#ids + 1] = some[at] end
  redis.call('XADD', q.answers, 'MAXLEN', '~', 1000, '*', 'ids', table.concat(ids, ' '))
  redis.call('PEXPIRE', q.answers, 3600000)
end
