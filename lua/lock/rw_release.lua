-- Purpose: end a request for a read or write lock: its hold, its waiting, or both; then wake the
--   waiters that may enter. A writer that leaves invites the waiting readers, so writers do not
--   follow one another for ever. A repeated call returns the first one's answer.
-- KEYS[1]: the write holds; KEYS[2]: the read holds; KEYS[3]: the waiting writers; KEYS[4]: the
--   waiting readers; KEYS[5]: the invited readers (see rw_read.lua); KEYS[6]: this request's latch
-- ARGV[1]: the owner; ARGV[2]: the request, without a colon; ARGV[3]: the latch's life in ms
-- ARGV[4]: the writers' channel, gets 0: one of them may enter
-- ARGV[5]: the readers' channel, gets 1: all of them may enter
-- ARGV[6]: the command that sends these: PUBLISH, or SPUBLISH on a cluster
-- Returns: 1 its hold was freed, and one more for each waiting writer process that was told by a
--   writer; 0 another owner writes; -1 the hold was not there
-- Errors: WRONGTYPE; ERR arguments
local function whole(text, least)
  local number = tonumber(text)
  return number and number >= least and number <= 1e12 and number % 1 == 0 and number or nil
end
local owner, id, writers_channel, readers_channel = ARGV[1], ARGV[2], ARGV[4], ARGV[5]
local publish = ARGV[6]
local latch_ms = whole(ARGV[3], 1)
if #KEYS ~= 6 or #ARGV ~= 6 or owner == '' or not id:find('^[^:]+$') or not latch_ms
  or writers_channel == '' or readers_channel == ''
  or (publish ~= 'PUBLISH' and publish ~= 'SPUBLISH') then
  return redis.error_reply('ERR arguments: 6 keys; owner, request, latch ms, two channels, command')
end
local write, read, writers, readers, invited = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local clock = redis.call('TIME')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)
local hold = id .. ':' .. owner

-- All keys are read before the first write: one of another type is refused here.
local wrote_until = tonumber(redis.call('ZSCORE', write, hold) or 0)
local own_ends = math.max(wrote_until, tonumber(redis.call('ZSCORE', read, hold) or 0))
for at = 3, 5 do
  redis.call('ZSCORE', KEYS[at], id)
end
local answered = redis.call('GET', KEYS[6])
if answered then
  return tonumber(answered)
end

-- Takes out what is this request's and what has ended; the key ends with what is left.
local function clear(key, member)
  redis.call('ZREM', key, member)
  redis.call('ZREMRANGEBYSCORE', key, '-inf', now)
  local last = redis.call('ZRANGE', key, -1, -1, 'WITHSCORES')
  if last[1] then
    redis.call('PEXPIREAT', key, last[2])
  end
  return last[1]
end
local writer, reading = clear(write, hold), clear(read, hold)
local is_writer_waiting, is_reader_waiting = clear(writers, id), clear(readers, id)
local is_invited = clear(invited, id)

local answer = -1
if own_ends > now then
  answer = 1
elseif writer and writer:match(':(.*)') ~= owner then
  answer = 0
end
-- A server whose memory is full refuses this; the script continues.
redis.pcall('SET', KEYS[6], answer, 'PX', latch_ms)
if writer then
  return answer
end
-- Without the right to publish, waiters find out by polling.
local told = 0
if wrote_until > now and is_reader_waiting then
  redis.call('RENAME', readers, invited)
  redis.pcall(publish, readers_channel, '1')
elseif is_writer_waiting then
  if not reading and not is_invited then
    told = redis.pcall(publish, writers_channel, '0')
  end
elseif is_reader_waiting then
  redis.pcall(publish, readers_channel, '1')
end
-- To a writer's release: how many waiting processes were told, so that it lets them go first.
if answer == 1 and wrote_until > now and type(told) == 'number' then
  return answer + told
end
return answer
