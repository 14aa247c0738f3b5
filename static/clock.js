// Estimates the service's time.
//
// Each answer of the voucher list has `server_time`. It was written somewhere between sending and
// receiving, so half the round trip is added; the error is at most half the round trip. A sample is
// kept if it is about as good as the last one, or if that one is older than a minute. Between
// samples the monotonic clock counts, so a changed wall clock has no effect.

const STALE_AFTER_MS = 60_000;

let best = null; // { offsetMs, roundTripMs, takenMs }

/** RFC 3339 to milliseconds since 1970; NaN if it is none. Fractions beyond ms are cut off. */
export function parseTime(text) {
  if (typeof text !== 'string') return NaN;
  return Date.parse(text.replace(/(\.\d{3})\d+/, '$1'));
}

/** Takes one sample. `sentMs` and `receivedMs` are readings of performance.now(). */
export function sample(serverTime, sentMs, receivedMs) {
  const serverMs = parseTime(serverTime);
  const roundTripMs = receivedMs - sentMs;
  if (!Number.isFinite(serverMs) || !(roundTripMs >= 0)) return;
  const old = best === null || receivedMs - best.takenMs > STALE_AFTER_MS;
  if (!old && roundTripMs > best.roundTripMs * 1.5 + 5) return;
  best = { offsetMs: serverMs - (sentMs + receivedMs) / 2, roundTripMs, takenMs: receivedMs };
}

/** Marks the sample as old: during sleep the monotonic clock may have stopped. */
export function distrust() {
  if (best) best.takenMs = -Infinity;
}

/** The service's time now, in ms since 1970; this computer's own until the first sample. */
export function now() {
  return best ? best.offsetMs + performance.now() : Date.now();
}
