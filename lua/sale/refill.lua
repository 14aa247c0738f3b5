-- Purpose: add units that came back to the database, by an admin or a cancelled order. The sum of
--   all units that ever came there only grows; each growth is added once, whatever is admitted or
--   written meanwhile.
--   Also correct the stock, which may be wrong (an entry without a ticket, replicas of both modes),
--   if there was no admission while the database was read. Each entry in flight may still take a
--   unit there or give one back here. Without entries in flight the result is exact.
-- KEYS[1]: the sale, a hash
-- ARGV[1]: the epoch; ARGV[2]: how many had been admitted (`seq`) before the database was read;
--   ARGV[3]: the most entries in flight then; ARGV[4]: units left there; ARGV[5]: units
--   that ever came there, of the same moment
-- Returns: 1 there are units to admit; 0 there are none
local sale = redis.call('HMGET', KEYS[1], 'epoch', 'seq', 'stock', 'came')
if sale[1] ~= ARGV[1] then
  return 0
end
local stock, came = tonumber(sale[3]), tonumber(ARGV[5])
local known = tonumber(sale[4]) or came
-- A smaller sum is older than one that was added already.
if came >= known then
  stock = stock + came - known
  if sale[2] == ARGV[2] then
    local in_flight = tonumber(ARGV[3])
    local free = tonumber(ARGV[4]) - in_flight
    if in_flight == 0 or free > stock then
      stock = free
    end
  end
  redis.call('HSET', KEYS[1], 'stock', string.format('%.0f', stock), 'came', ARGV[5])
end
return stock > 0 and 1 or 0
