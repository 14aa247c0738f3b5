-- Purpose: acknowledge entries whose tickets have ended. The first acknowledgement also writes the
--   ticket's state and drops its number. Without an order it gives the unit and the user's mark
--   back.
-- KEYS[1]: the sale, a hash; KEYS[2]: the users, a hash; KEYS[3]: the tickets, a hash; KEYS[4]: the
--   stream; KEYS[5]: the tries, a hash
-- ARGV: six for each entry: its id, ticket, user, epoch; the state; what is given back: 'u' the
--   unit, 'm' the user's mark, both, or ''
-- Returns: how many were acknowledged now; entries of another epoch are not of this stream
local first, numbers = {}, {}
local epoch = redis.call('HGET', KEYS[1], 'epoch')
for at = 1, #ARGV, 6 do
  local id, ticket, user = ARGV[at], ARGV[at + 1], ARGV[at + 2]
  if epoch == ARGV[at + 3] and redis.call('XACK', KEYS[4], 'sale', id) == 1 then
    first[#first + 1], numbers[#first + 1] = id, 'n:' .. ticket
    redis.call('HSET', KEYS[3], ticket, ARGV[at + 4])
    local back = ARGV[at + 5]
    if string.find(back, 'u', 1, true) then
      redis.call('HINCRBY', KEYS[1], 'stock', 1)
    end
    if string.find(back, 'm', 1, true) and redis.call('HGET', KEYS[2], user) == ticket then
      redis.call('HDEL', KEYS[2], user)
    end
  end
end
if #first > 0 then
  redis.call('XDEL', KEYS[4], unpack(first))
  redis.call('HDEL', KEYS[5], unpack(first))
  redis.call('HDEL', KEYS[3], unpack(numbers))
end
return #first
