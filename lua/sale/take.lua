-- Purpose: hand out entries of the stream to a consumer: new ones, those that it took before it was
--   restarted, or those that any consumer has held for too long without a sign of life. (How often
--   an entry was handed out means nothing: an answer that comes too late hands out, too. Tries are
--   counted, see count.lua.)
-- KEYS[1]: the stream
-- ARGV[1]: the consumer; ARGV[2]: the most entries; ARGV[3]: 'new', 'own' or 'idle'; ARGV[4]: with
--   'own' after which id, with 'idle' for how long, in ms
-- Returns: a list of {id, field, value, field, value, ...}
-- Errors: NOGROUP there is no such stream
local count = tonumber(ARGV[2])
local entries = {}
if ARGV[3] == 'idle' then
  -- XAUTOCLAIM looks at ten times as many as it may claim: those at the front that somebody is at
  -- work on must not hide the rest. The looks are bounded; there are seldom more than two.
  local from, looks = '0', 0
  repeat
    local claimed = redis.call('XAUTOCLAIM', KEYS[1], 'sale', ARGV[1], ARGV[4], from,
      'COUNT', count - #entries)
    for _, entry in ipairs(claimed[2]) do
      entries[#entries + 1] = entry
    end
    from, looks = claimed[1], looks + 1
  until from == '0-0' or #entries >= count or looks >= 500
else
  local from = ARGV[3] == 'new' and '>' or ARGV[4]
  local read = redis.call('XREADGROUP', 'GROUP', 'sale', ARGV[1], 'COUNT', count,
    'STREAMS', KEYS[1], from)
  entries = read and read[1][2] or {}
end
local taken = {}
for _, entry in ipairs(entries) do
  -- An entry without fields was deleted, and nobody can work on it.
  local id, fields = entry[1], entry[2]
  if type(fields) == 'table' then
    table.insert(fields, 1, id)
    taken[#taken + 1] = fields
  else
    redis.call('XACK', KEYS[1], 'sale', id)
  end
end
return taken
