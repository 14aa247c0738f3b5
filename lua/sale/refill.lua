-- Purpose: take over the units that the database has and this account does not know: those that
--   came back (added by an admin, of orders that were cancelled) are admitted again. All that ever
--   came there is one number that only grows. What it has grown by is taken over once, whoever
--   asks, and whatever is admitted or written meanwhile.
--   Also correct the account, which may have gone wrong (an entry that named no ticket, replicas of
--   both paths), if nobody was admitted while the database was asked. Whatever was on its way there
--   may still take a unit each, or give it back here; all others are free. If nothing was, that is
--   exact.
-- KEYS[1]: the sale, a hash
-- ARGV[1]: the epoch; ARGV[2]: how many had been admitted (`seq`) before the database was asked;
--   ARGV[3]: how many were on their way then, at most; ARGV[4]: units left there; ARGV[5]: units
--   that ever came there, of the same moment
-- Returns: 1 there are units to admit; 0 there are none
local sale = redis.call('HMGET', KEYS[1], 'epoch', 'seq', 'stock', 'came')
if sale[1] ~= ARGV[1] then
  return 0
end
local stock, came = tonumber(sale[3]), tonumber(ARGV[5])
local known = tonumber(sale[4]) or came
-- Otherwise somebody has asked later and was faster.
if came >= known then
  stock = stock + came - known
  if sale[2] == ARGV[2] then
    local under_way = tonumber(ARGV[3])
    local free = tonumber(ARGV[4]) - under_way
    if under_way == 0 or free > stock then
      stock = free
    end
  end
  redis.call('HSET', KEYS[1], 'stock', string.format('%.0f', stock), 'came', ARGV[5])
end
return stock > 0 and 1 or 0
