// Paying or cancelling one order, from the click to a definite outcome. Knows nothing of the page.
//
// Such a request may be repeated with its key: it is done once, and all are told the same. So an
// unclear answer is asked for by sending the request again, for a bounded time.
//
// An outcome is { kind, code, order, waitS, answer }:
//   done     the order is what was wished: `order`
//   refused  nothing was done by this request; `code` says why
//   unknown  nobody could tell; a later try does no harm

import { request, uuid } from './http.js';

// When to send it again whose answer is unclear: about 15 s in all, the request times on top.
const AGAIN_AFTER_MS = [300, 700, 1000, 2000, 3000, 4000, 4000];

const running = new Set();
// The key of a wish is kept until its outcome is known.
const keys = new Map();

/** Whether this order is being paid or cancelled: a second click is then no second request. */
export function isSettling(orderId) {
  return running.has(orderId);
}

/** Forgets what belonged to the person before. */
export function forgetWishes() {
  keys.clear();
}

/** @param action 'pay' or 'cancel'; `onAsking()` is called when the first answer was unclear */
export async function settle(action, orderId, onAsking) {
  if (running.has(orderId)) return null;
  running.add(orderId);
  const wish = `${action} ${orderId}`;
  try {
    if (!keys.has(wish)) keys.set(wish, uuid());
    const outcome = await send(action, orderId, keys.get(wish), onAsking);
    if (outcome.kind !== 'unknown') keys.delete(wish);
    return outcome;
  } finally {
    running.delete(orderId);
  }
}

async function send(action, orderId, key, onAsking) {
  const path = `/api/orders/${encodeURIComponent(orderId)}/${action}`;
  const options = { body: {}, headers: { 'Idempotency-Key': key } };
  let outcome = classify(await request('POST', path, options));
  for (const delayMs of AGAIN_AFTER_MS) {
    if (outcome.kind !== 'unknown' && outcome.code !== 'request_in_progress') break;
    onAsking();
    await new Promise((wake) => { setTimeout(wake, delayMs); });
    outcome = classify(await request('POST', path, options));
  }
  return outcome;
}

function classify(answer) {
  const { status, body, problem } = answer;
  if (status === 200 && body?.order?.id) {
    return { kind: 'done', code: 'done', order: body.order, answer };
  }
  const clear = problem && ((status >= 400 && status < 500)
    || (status === 503 && problem.executed === false));
  if (!clear) return { kind: 'unknown', code: 'outcome_unknown', answer };
  return { kind: 'refused', code: problem.code ?? '', waitS: answer.retryAfterS ?? 0, answer };
}
