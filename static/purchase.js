// One purchase, from the click to a definite outcome: bought, refused, or (after asking for a
// bounded time) unknown. Knows nothing of the page.
//
// An outcome is { kind, code, orderId, order, waitS, answer }:
//   bought   a row exists: from this click
//   refused  no row was written; `code` says why, `orderId` if an older order is the reason
//   unknown  nobody could tell; buying again is safe, because there is one order for each person
// A purchase that was given a ticket is followed until that has ended; how the ticket ended is the
// outcome.

import { follow } from './follow.js';
import { request, uuid } from './http.js';

// When to ask for an order whose fate is unknown: about 25 s in all, the request times on top.
const ASK_AFTER_MS = [300, 700, 1000, 2000, 3000, 4000, 5000, 5000, 5000];
const DEFAULT_WAIT_S = { order_in_progress: 1, request_in_progress: 1, overloaded: 2, draining: 1 };

const running = new Set();
// The key of a purchase is kept until its outcome is known, so that a repeat can be told from a new
// wish.
const keys = new Map();
// Ends what is done for who is logged in when somebody else is.
let visit = new AbortController();

// What a ticket that ended without an order of its own is called here, and when to buy again.
const REFUSED = {
  already_ordered: { code: 'already_ordered', waitS: 0 },
  sold_out: { code: 'sold_out', waitS: 0 },
  refused: { code: 'ticket_refused', waitS: 2 },
  lost: { code: 'ticket_lost', waitS: 0 },
  dead: { code: 'ticket_dead', waitS: 0 },
};

/** Whether a purchase of this voucher is on its way: a second click is then no second purchase. */
export function isRunning(voucherId) {
  return running.has(voucherId);
}

/** Forgets what belonged to the person before. */
export function forgetKeys() {
  keys.clear();
  visit.abort();
  visit = new AbortController();
}

/**
 * Buys. `onAsking(n, of)` is called before each question about an unclear outcome, `onPending()`
 * each time the service says that the purchase waits in the queue.
 */
export async function buy(voucherId, { onAsking, onPending }) {
  if (running.has(voucherId)) return null;
  running.add(voucherId);
  try {
    if (!keys.has(voucherId)) keys.set(voucherId, uuid());
    const answer = await request('POST', `/api/vouchers/${encodeURIComponent(voucherId)}/orders`, {
      body: {},
      headers: { 'Idempotency-Key': keys.get(voucherId) },
    });
    let outcome = classify(answer);
    if (outcome.kind === 'queued') outcome = await outcomeOf(outcome, onPending);
    if (outcome.code === 'outcome_unknown') outcome = await findOut(voucherId, outcome, onAsking);
    if (outcome.kind !== 'unknown') keys.delete(voucherId);
    return outcome;
  } finally {
    running.delete(voucherId);
  }
}

/** The rule for clients: only 201, problem+json 4xx and 503 "executed": false are definite. */
export function classify(answer) {
  const { status, body, problem } = answer;
  const orderId = problem?.order_id ?? null;
  if (status === 201 && body?.order?.id) {
    return { kind: 'bought', code: 'bought', order: body.order, orderId: body.order.id, answer };
  }
  // Also where nobody knows whether it was admitted: the ticket knows, or will.
  const ticketId = status === 202 ? body?.ticket?.id : problem?.ticket_id;
  if (ticketId) return { kind: 'queued', ticketId, answer };
  const clear = problem && ((status >= 400 && status < 500)
    || (status === 503 && problem.executed === false));
  if (!clear) return { kind: 'unknown', code: 'outcome_unknown', orderId, answer };
  const code = problem.code ?? '';
  const waitS = answer.retryAfterS ?? (status === 503 ? 2 : DEFAULT_WAIT_S[code] ?? 0);
  return { kind: 'refused', code, orderId, waitS, answer };
}

// How the ticket ended; unknown if it did not within the time, or is not known any more.
async function outcomeOf({ ticketId, answer: given }, onPending) {
  const { signal } = visit;
  const { ticket, answer } = await follow(ticketId, { onPending, signal });
  const said = answer ?? given;
  const orderId = ticket?.order_id ?? null;
  if (ticket?.status === 'bought') {
    // What it costs, and until when: a comfort, without which it is bought as well.
    const { order } = await lookUp(null, orderId);
    return { kind: 'bought', code: 'bought', order, orderId, answer: said };
  }
  const refused = REFUSED[ticket?.status];
  if (refused) return { kind: 'refused', ...refused, orderId, answer: said };
  const code = said.status === 404 ? 'outcome_unknown' : 'still_queued';
  return { kind: 'unknown', code, orderId, answer: said };
}

async function findOut(voucherId, unknown, onAsking) {
  for (const [index, delayMs] of ASK_AFTER_MS.entries()) {
    onAsking(index + 1, ASK_AFTER_MS.length);
    await new Promise((wake) => { setTimeout(wake, delayMs); });
    const { order, answer } = await lookUp(voucherId, unknown.orderId);
    if (order) return { kind: 'bought', code: 'found_out', order, orderId: order.id, answer };
    if (answer.status === 401) return unknown;
  }
  return unknown;
}

// By its id if the service named one, else among the newest orders: the voucher's is there or not.
async function lookUp(voucherId, orderId) {
  if (orderId) {
    const answer = await request('GET', `/api/orders/${encodeURIComponent(orderId)}`);
    return { order: answer.status === 200 ? answer.body?.order : null, answer };
  }
  const answer = await request('GET', '/api/orders?limit=20');
  const orders = answer.status === 200 ? answer.body?.orders ?? [] : [];
  return { order: orders.find((order) => order.voucher_id === voucherId), answer };
}
