// Pays or cancels one order, from the click to an outcome. This module does not touch the page.
//
// A request that is repeated with its key takes effect once, and gets the same answer. So an
// unclear answer is resolved by sending the request again, for about 15 s.
//
// An outcome is { kind, code, order, waitS, answer }. Its kinds:
//
// - done: `order` is paid or cancelled, as asked.
// - refused: this request changed nothing; `code` says why.
// - unknown: no answer said. Trying again later is safe.

import { request, uuid } from './http.js';

// Waits before a request with an unclear answer is sent again: 15 s in all, plus the requests.
const AGAIN_AFTER_MS = [300, 700, 1000, 2000, 3000, 4000, 4000];

const running = new Set();
// Idempotency keys by action and order, each kept until the outcome is known.
const keys = new Map();

/** Whether this order is being paid or cancelled; a second click is then ignored. */
export function isSettling(orderId) {
  return running.has(orderId);
}

/** Forgets the keys of the former user. */
export function forgetKeys() {
  keys.clear();
}

/** @param action 'pay' or 'cancel'; `onAsking()` is called when the first answer was unclear */
export async function settle(action, orderId, onAsking) {
  if (running.has(orderId)) return null;
  running.add(orderId);
  const name = `${action} ${orderId}`;
  try {
    if (!keys.has(name)) keys.set(name, uuid());
    const outcome = await send(action, orderId, keys.get(name), onAsking);
    if (outcome.kind !== 'unknown') keys.delete(name);
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
