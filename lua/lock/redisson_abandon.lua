-- Purpose: undo an acquisition whose answer was lost, if it was carried out, and keep it from being
--   carried out later.
-- KEYS[1]: the lock, a hash of owner to hold count
-- KEYS[2]: the channel of its waiters
-- KEYS[3]: the latch of the acquisition
-- ARGV[1]: the message
-- ARGV[2]: the owner
-- ARGV[3]: 1 if the owner may have held the lock before, 0 if the owner is new
-- ARGV[4]: for how long to refuse the acquisition, in ms
-- ARGV[5]: the command that sends it: PUBLISH, or SPUBLISH on a cluster
-- Returns: 1 there was something to undo; 0 there was not
-- Errors: WRONGTYPE; ERR arguments
local function is_ms(text)
  local ms = tonumber(text)
  return ms and ms >= 1 and ms <= 1e15 and ms % 1 == 0
end
if #KEYS ~= 3 or #ARGV ~= 5 or ARGV[1] == '' or ARGV[2] == ''
  or (ARGV[3] ~= '0' and ARGV[3] ~= '1') or not is_ms(ARGV[4])
  or (ARGV[5] ~= 'PUBLISH' and ARGV[5] ~= 'SPUBLISH') then
  return redis.error_reply('ERR arguments: lock, channel, latch; '
    .. 'message, owner, 0 or 1, ms, command')
end
local latch = redis.call('GET', KEYS[3])
local count = tonumber(redis.call('HGET', KEYS[1], ARGV[2]) or nil)
local counted = count and (latch == '1' or (ARGV[3] == '0' and latch ~= '0'))
if counted and count > 1 then
  redis.call('HINCRBY', KEYS[1], ARGV[2], -1)
elseif counted then
  redis.call('DEL', KEYS[1])
  redis.pcall(ARGV[5], KEYS[2], ARGV[1])
end
redis.pcall('SET', KEYS[3], '0', 'PX', tonumber(ARGV[4]))
return counted and 1 or 0
