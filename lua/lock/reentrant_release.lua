-- Purpose: give up one hold of a lock, and free the lock with the last; one step.
-- KEYS[1]: the lock, a hash from its owner to the number of its holds
-- ARGV[1]: the owner; ARGV[2]: the lease of this hold in ms, set again for the holds that are left
-- Returns: the holds that are left, 0 freed; -1 another owner's, untouched; -2 not held
-- Errors: WRONGTYPE; ERR arguments
local owner, lease = ARGV[1], ARGV[2]
if not owner or owner == '' then
  return redis.error_reply('ERR the owner is missing')
end
-- With more digits PEXPIRE might refuse it when the hold is counted down already.
if not lease or not string.match(lease, '^[1-9]%d*$') or #lease > 15 then
  return redis.error_reply('ERR the lease is no number of ms')
end
local count = redis.call('HGET', KEYS[1], owner)
if not count then
  return redis.call('EXISTS', KEYS[1]) == 0 and -2 or -1
end
if not tonumber(count) then
  return redis.error_reply('WRONGTYPE the hold count is no number')
end
local holds = redis.call('HINCRBY', KEYS[1], owner, -1)
if holds <= 0 then
  redis.call('DEL', KEYS[1])
  return 0
end
if redis.call('PTTL', KEYS[1]) < tonumber(lease) then
  redis.call('PEXPIRE', KEYS[1], lease)
end
return holds
