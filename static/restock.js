// Asks whether a unit of a sold-out voucher has come back. This module does not touch the page.
//
// A crowd may wait, so the answer is one that caches may keep, and this asks with growing pauses,
// each varied by 15 % either way, and not for ever.

import { pause } from './follow.js';
import { request } from './http.js';

const WATCH_MS = 15 * 60_000;
const ASK_AFTER_MS = 5_000;
const ASK_AT_LEAST_EVERY_MS = 15_000;

/**
 * Watches a voucher until `signal` aborts. `onChange(available)` is called when a unit comes back,
 * and when it is gone again. Resolves to true if nothing is left to wait for: the time is over or
 * the voucher is gone. While `isActive()` is false it asks as seldom as it ever does.
 */
export async function watchRestock(voucherId, { isActive, onChange, signal }) {
  const path = `/api/vouchers/${encodeURIComponent(voucherId)}/availability`;
  const untilMs = performance.now() + WATCH_MS;
  let known = false;
  let delayMs = ASK_AFTER_MS;
  while (performance.now() < untilMs) {
    await pause(isActive() ? delayMs : Math.max(delayMs, ASK_AT_LEAST_EVERY_MS), signal);
    if (signal.aborted) return false;
    if (!navigator.onLine) continue;
    const { status, body, retryAfterS } = await request('GET', path, { anonymous: true, signal });
    if (signal.aborted) return false;
    if (status === 404) return true;
    if (status === 200 && body?.available === !known) {
      known = !known;
      onChange(known);
    }
    delayMs = Math.min(delayMs * 1.2, ASK_AT_LEAST_EVERY_MS);
    delayMs = Math.max(delayMs, (retryAfterS ?? 0) * 1000);
  }
  return true;
}
