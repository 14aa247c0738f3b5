-- Purpose: take a lock as Redisson's RLock does, or enter it once more; or return its remaining
--   lease. An owner that enters again must still hold it. Holds have no names but their number: a
--   stale one would count down, and free, what a new one had taken.
-- KEYS[1]: the lock, a hash of owner to hold count
-- KEYS[2]: the latch of this acquisition: 1 its re-entry was counted, 0 it was abandoned
-- ARGV[1]: the lease, in ms
-- ARGV[2]: the owner
-- ARGV[3]: 1 if the owner enters again; 0 if it is new: what it holds was then taken by this
--   acquisition, whose answer was lost
-- ARGV[4]: how long to remember a re-entry, in ms
-- Returns: nil taken, for the lease at least; n >= 0 another owner's, for n ms more;
--   -1 another owner's, without expiry
-- Errors: GIVENUP this acquisition was abandoned before this call; LOST the owner enters again and
--   holds nothing; WRONGTYPE; ERR arguments
local function is_ms(text)
  return #text <= 15 and text:find('^[1-9]%d*$')
end
if #KEYS ~= 2 or #ARGV ~= 4 or not is_ms(ARGV[1]) or ARGV[2] == ''
  or (ARGV[3] ~= '0' and ARGV[3] ~= '1') or not is_ms(ARGV[4]) then
  return redis.error_reply('ERR arguments: lock, latch; lease, owner, 0 or 1, ms')
end
local latch = redis.call('GET', KEYS[2])
if latch == '0' then
  return redis.error_reply('GIVENUP the acquisition was abandoned')
end
local left = redis.call('PTTL', KEYS[1])
local count = left ~= -2 and redis.call('HGET', KEYS[1], ARGV[2])
if count and not tonumber(count) then
  return redis.error_reply('WRONGTYPE the hold count is no number')
end
if not count and ARGV[3] == '1' then
  return redis.error_reply('LOST the owner does not hold it any more')
end
if not count and left ~= -2 then
  -- A hash with another field, or with more than one, is no lock of this kind.
  local holds = redis.call('HVALS', KEYS[1])
  if #holds ~= 1 or not tonumber(holds[1]) then
    return redis.error_reply('WRONGTYPE the hash is no such lock')
  end
  return left
end
if not (count and (latch or ARGV[3] == '0')) then
  redis.call('HINCRBY', KEYS[1], ARGV[2], '1')
  if ARGV[3] == '1' then
    redis.call('SET', KEYS[2], '1', 'PX', ARGV[4])
  end
end
-- Never shorter than an outer hold's lease. Always written: a repetition on another connection has
-- no other write that replicas could confirm.
redis.call('PEXPIRE', KEYS[1], count and math.max(left, tonumber(ARGV[1])) or ARGV[1])
return false
