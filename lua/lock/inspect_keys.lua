-- Purpose: read locks that are one key each, all in one step, and of a large key only its size.
-- KEYS: the locks, of one slot on a cluster
-- ARGV[1]: the most bytes of an owner with its hold count
-- Returns: {locks, others}. `locks` is one list, which costs the server less than a list for each
--   key. It has three parts of each: the PTTL; the string, or the owner in a hash with one field;
--   the count of that owner. A part that a key has not, or that is longer, is false. `others` has
--   {place, type, fields, bytes, content} of each key with neither; bytes is 0 for other types and
--   for more fields. The content is each field and its value, of a hash with a field `mode` as
--   Redisson's read-write lock has, and of at most 1,001 fields. Otherwise it is empty
-- Errors: ERR arguments
if #KEYS < 1 or #ARGV ~= 1 or not tonumber(ARGV[1]) then
  return redis.error_reply('ERR arguments: locks; bytes')
end
local call, most, most_fields = redis.call, tonumber(ARGV[1]), 1001
local locks, others = {}, {}
-- By the encoding a key is known to be small, which saves three commands. A user who has no right
-- to ask does not ask again.
local may_ask = true

local function small_content(key)
  local encoding = redis.pcall('OBJECT', 'ENCODING', key)
  if encoding == 'listpack' or encoding == 'ziplist' then
    local all = redis.pcall('HGETALL', key)
    if all.err then
      may_ask = all.err:find('WRONGTYPE', 1, true) ~= nil -- of other types, which may be so small
    elseif #all == 2 and #all[1] + #all[2] <= most then
      return all[1], all[2]
    end
  elseif encoding == 'embstr' then
    return call('GET', key), false
  elseif type(encoding) == 'table' then
    may_ask = false
  end
end

local function fields_and_values(key)
  local all = {}
  for _, field in ipairs(call('HKEYS', key)) do
    if #field + call('HSTRLEN', key, field) > most then
      return {}
    end
    all[#all + 1] = field
    all[#all + 1] = call('HGET', key, field) or ''
  end
  return all
end

local function content(place, key)
  local kind = call('TYPE', key).ok
  local fields, bytes, all = 0, 0, {}
  if kind == 'string' then
    bytes = call('STRLEN', key)
    if bytes <= most then
      return call('GET', key), false
    end
  elseif kind == 'hash' then
    fields = call('HLEN', key)
    local owner = fields == 1 and call('HKEYS', key)[1]
    if owner then
      bytes = #owner + call('HSTRLEN', key, owner)
      if bytes <= most then
        return owner, call('HGET', key, owner)
      end
    elseif fields == 1 then -- it has expired
      fields = 0
    elseif fields <= most_fields and call('HSTRLEN', key, 'mode') > 0 then
      all = fields_and_values(key)
    end
  end
  others[#others + 1] = {place, kind, fields, bytes, all}
  return false, false
end

for place = 1, #KEYS do
  local key = KEYS[place]
  local left = call('PTTL', key)
  local first, second = false, false
  if left ~= -2 then
    first = nil
    if may_ask then
      first, second = small_content(key)
    end
    if not first then
      first, second = content(place, key)
    end
  end
  locks[3 * place - 2], locks[3 * place - 1], locks[3 * place] = left, first, second
end
return {locks, others}
