-- Purpose: open the queue of a voucher with the stock that the database has, or open it anew after
--   this server has lost its data. What a lower epoch left is dropped: nothing of it can be written
--   any more. An opener that was overtaken by a later one changes nothing.
-- KEYS[1]: the sale, a hash; KEYS[2]: the users, a hash; KEYS[3]: the tickets, a hash; KEYS[4]: the
--   stream; KEYS[5]: the tries, a hash; KEYS[6]: the turn of who opens
-- ARGV[1]: the epoch; ARGV[2]: units left; ARGV[3]: the database's time, in ms since 1970; ARGV[4]:
--   the end of the sale, the same; ARGV[5]: for how long everything outlives it, in ms; ARGV[6]:
--   units that ever came to the database, see refill.lua
-- Returns: 1 opened; 0 it is open in this or a later epoch
local open = redis.call('HGET', KEYS[1], 'epoch')
if open and tonumber(open) >= tonumber(ARGV[1]) then
  return 0
end
redis.call('DEL', unpack(KEYS))
local time = redis.call('TIME')
local skew = tonumber(ARGV[3]) - (time[1] * 1000 + math.floor(time[2] / 1000))
redis.call('HSET', KEYS[1], 'epoch', ARGV[1], 'stock', ARGV[2], 'seq', 0,
  'skew', string.format('%.0f', skew), 'came', ARGV[6])
redis.call('XGROUP', 'CREATE', KEYS[4], 'sale', '0', 'MKSTREAM')
local ends = string.format('%.0f', tonumber(ARGV[4]) - skew + tonumber(ARGV[5]))
redis.call('PEXPIREAT', KEYS[1], ends)
redis.call('PEXPIREAT', KEYS[4], ends)
return 1
