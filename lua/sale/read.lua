-- Purpose: deliver entries of the stream to a consumer: new ones, its own from before a restart, or
--   idle ones of any consumer. (Deliveries are not counted: an answer that comes too late delivers
--   as well. Tries are, see count_try.lua.)
-- KEYS[1]: the stream
-- ARGV[1]: the consumer; ARGV[2]: the most entries; ARGV[3]: 'new', 'own' or 'idle'; ARGV[4]: with
--   'own' after which id, with 'idle' for how long, in ms
-- Returns: a list of {id, field, value, field, value, ...}
-- Errors: NOGROUP there is no such stream
local count = tonumber(ARGV[2])
local entries = {}
if ARGV[3] == 'idle' then
  -- XAUTOCLAIM scans ten times as many entries as it may claim: entries in progress at the front
  -- must not hide the rest. The number of calls is bounded, and seldom more than two.
  local from, calls = '0', 0
  repeat
    local claimed = redis.call('XAUTOCLAIM', KEYS[1], 'sale', ARGV[1], ARGV[4], from,
      'COUNT', count - #entries)
    for _, entry in ipairs(claimed[2]) do
      entries[#entries + 1] = entry
    end
    from, calls = claimed[1], calls + 1
  until from == '0-0' or #entries >= count or calls >= 500
else
  local from = ARGV[3] == 'new' and '>' or ARGV[4]
  local read = redis.call('XREADGROUP', 'GROUP', 'sale', ARGV[1], 'COUNT', count,
    'STREAMS', KEYS[1], from)
  entries = read and read[1][2] or {}
end
local taken = {}
for _, entry in ipairs(entries) do
  -- An entry without fields was deleted.
  local id, fields = entry[1], entry[2]
  if type(fields) == 'table' then
    table.insert(fields, 1, id)
    taken[#taken + 1] = fields
  else
    redis.call('XACK', KEYS[1], 'sale', id)
  end
end
return taken
