//! The atomic scripts. Each reads the server's own clock, so that instances need not agree about time.

use redis::Script;

/// Money is kept in slices of so many milliseconds, and by the quarter of an hour for the day.
pub(super) const SLICE_MS: u64 = 300_000;

/// `{1|0, level}`: one token out of a bucket of ARGV refill a second and burst.
const RETRY: &str = "
local t = redis.call('TIME')
local now = t[1] * 1000 + math.floor(t[2] / 1000)
local refill, burst = tonumber(ARGV[1]), tonumber(ARGV[2])
local kept = redis.call('HMGET', KEYS[1], 'level', 'at')
local level, at = tonumber(kept[1]) or burst, tonumber(kept[2]) or now
level = math.min(burst, level + math.max(0, now - at) * refill / 1000)
local taken = 0
if level >= 1 then level = level - 1; taken = 1 end
redis.call('HSET', KEYS[1], 'level', tostring(level), 'at', tostring(math.max(now, at)))
redis.call('PEXPIRE', KEYS[1], 86400000)
return {taken, tostring(level)}";

/// `{1, 0, 0, now}`, or `{0, place of the scope, 1 for its day, now}`. A slice counts until all of it has left.
const RESERVE: &str = "
local t = redis.call('TIME')
local now = t[1] * 1000 + math.floor(t[2] / 1000)
local amount = tonumber(ARGV[1])
local h, d = math.floor(now / 300000), math.floor(now / 900000)
for i, key in ipairs(KEYS) do
  local hour, day = tonumber(ARGV[i * 2]), tonumber(ARGV[i * 2 + 1])
  if hour > 0 or day > 0 then
    local all, hs, ds = redis.call('HGETALL', key), 0, 0
    for j = 1, #all, 2 do
      local kind, at, n = string.sub(all[j], 1, 1), tonumber(string.sub(all[j], 2)), tonumber(all[j + 1])
      if kind == 'h' then
        if at + 12 >= h then hs = hs + n else redis.call('HDEL', key, all[j]) end
      elseif at + 96 >= d then ds = ds + n else redis.call('HDEL', key, all[j]) end
    end
    if hour > 0 and hs + amount > hour then return {0, i, 0, now} end
    if day > 0 and ds + amount > day then return {0, i, 1, now} end
  end
end
for _, key in ipairs(KEYS) do
  redis.call('HINCRBY', key, 'h' .. h, ARGV[1])
  redis.call('HINCRBY', key, 'd' .. d, ARGV[1])
  redis.call('PEXPIRE', key, 172800000)
end
return {1, 0, 0, now}";

/// For each scope: spent within an hour and within a day, since the clock hour's and the day's begin, and in the
/// present slice together with the one before. `{now, {…}, {…}}`.
const SPENT: &str = "
local t = redis.call('TIME')
local now = t[1] * 1000 + math.floor(t[2] / 1000)
local h, d = math.floor(now / 300000), math.floor(now / 900000)
local hour, day = math.floor(now / 3600000) * 12, math.floor(now / 86400000) * 96
local out = {}
for _, key in ipairs(KEYS) do
  local all, s = redis.call('HGETALL', key), {0, 0, 0, 0, 0}
  for j = 1, #all, 2 do
    local kind, at, n = string.sub(all[j], 1, 1), tonumber(string.sub(all[j], 2)), tonumber(all[j + 1])
    if kind == 'h' then
      if at + 12 >= h then s[1] = s[1] + n end
      if at >= hour then s[3] = s[3] + n end
      if at + 1 >= h then s[5] = s[5] + n end
    else
      if at + 96 >= d then s[2] = s[2] + n end
      if at >= day then s[4] = s[4] + n end
    end
  end
  out[#out + 1] = s
end
return {now, out}";

/// Corrects one scope by ARGV delta in the slices that held ARGV moment.
const SETTLE: &str = "
local at = tonumber(ARGV[1])
redis.call('HINCRBY', KEYS[1], 'h' .. math.floor(at / 300000), ARGV[2])
redis.call('HINCRBY', KEYS[1], 'd' .. math.floor(at / 900000), ARGV[2])
redis.call('PEXPIRE', KEYS[1], 172800000)
return 1";

/// Publishes a state: ARGV instance, target, open (1|0), due, cause, message.
const PUBLISH: &str = "
local t = redis.call('TIME')
local now = t[1] * 1000 + math.floor(t[2] / 1000)
redis.call('HSET', KEYS[1], ARGV[2], cjson.encode({
  at = now, by = ARGV[1], open = ARGV[3] == '1', due = tonumber(ARGV[4]), cause = ARGV[5], message = ARGV[6] }))
redis.call('PEXPIRE', KEYS[1], 86400000)
return now";

/// A sign of life, and everything that there is to know: `{now, instances, retry level, leases held (1|0 each), states}`.
/// KEYS: instances, states, retry bucket, then a lease each; ARGV: instance, milliseconds of a lease.
const BEAT: &str = "
local t = redis.call('TIME')
local now = t[1] * 1000 + math.floor(t[2] / 1000)
redis.call('ZADD', KEYS[1], now, ARGV[1])
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now - 10000)
local held = {}
for i = 4, #KEYS do
  local owner = redis.call('GET', KEYS[i])
  if not owner then
    redis.call('SET', KEYS[i], ARGV[1], 'PX', ARGV[2])
    owner = ARGV[1]
  elseif owner == ARGV[1] then
    redis.call('PEXPIRE', KEYS[i], ARGV[2])
  end
  held[#held + 1] = owner == ARGV[1] and 1 or 0
end
local level = redis.call('HGET', KEYS[3], 'level') or ''
return {now, redis.call('ZCARD', KEYS[1]), level, held, redis.call('HGETALL', KEYS[2])}";

#[derive(Debug)]
pub(super) struct Scripts {
    pub(super) retry: Script,
    pub(super) reserve: Script,
    pub(super) settle: Script,
    pub(super) spent: Script,
    pub(super) publish: Script,
    pub(super) beat: Script,
}

impl Default for Scripts {
    fn default() -> Self {
        Self {
            retry: Script::new(RETRY),
            reserve: Script::new(RESERVE),
            settle: Script::new(SETTLE),
            spent: Script::new(SPENT),
            publish: Script::new(PUBLISH),
            beat: Script::new(BEAT),
        }
    }
}
