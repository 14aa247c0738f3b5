-- Purpose: take a lock, or take it once more; one step, so nothing comes between.
-- KEYS[1]: the lock, a hash from its owner to the number of its holds
-- ARGV[1]: the owner; ARGV[2]: the lease of this hold in ms, which never shortens another hold's
-- ARGV[3]: 1 if the owner enters again and must still hold it, 0 if it is new. Holds have no names
--   but their number, so a stale one would free what a new one had taken.
-- Returns: the owner's holds, this one included; 0 another owner's, untouched; -1 the same, and it
--   has no end
-- Errors: LOST the owner enters again and holds nothing; WRONGTYPE; ERR arguments
local owner, lease, again = ARGV[1], ARGV[2], ARGV[3]
if not owner or owner == '' then
  return redis.error_reply('ERR the owner is missing')
end
-- With more digits PEXPIRE might refuse it when the hold is counted already.
if not lease or not string.match(lease, '^[1-9]%d*$') or #lease > 15 then
  return redis.error_reply('ERR the lease is no number of ms')
end
if again ~= '0' and again ~= '1' then
  return redis.error_reply('ERR whether the owner comes again is missing')
end
local count = redis.call('HGET', KEYS[1], owner)
if count and not tonumber(count) then
  return redis.error_reply('WRONGTYPE the hold count is no number')
end
if not count and again == '1' then
  return redis.error_reply('LOST the owner does not hold it any more')
end
local others = count and {} or redis.call('HVALS', KEYS[1])
if #others > 0 then
  -- A hash with another field, or with more than one, is no lock of this kind.
  if #others > 1 or not tonumber(others[1]) then
    return redis.error_reply('WRONGTYPE the hash is no such lock')
  end
  return redis.call('PTTL', KEYS[1]) == -1 and -1 or 0
end
local holds = redis.call('HINCRBY', KEYS[1], owner, 1)
if redis.call('PTTL', KEYS[1]) < tonumber(lease) then
  redis.call('PEXPIRE', KEYS[1], lease)
end
return holds
