// One purchase, from the click to an outcome. This module does not touch the page.
//
// An outcome is { kind, code, orderId, order, waitS, answer }. Its kinds:
//
// - bought: this click made an order.
// - refused: no order was written. `code` says why; `orderId` is an older order that is the reason.
// - unknown: no answer said, for about 25 s. Buying again is safe: a user gets one order.
//
// If the service gives a ticket, the purchase follows it; the ticket's end is the outcome.

import { follow } from './follow.js';
import { request, uuid } from './http.js';

// Waits between questions about an unknown outcome: 25 s in all, plus the time of the requests.
const ASK_AFTER_MS = [300, 700, 1000, 2000, 3000, 4000, 5000, 5000, 5000];
const DEFAULT_WAIT_S = { order_in_progress: 1, request_in_progress: 1, overloaded: 2, draining: 1 };

const running = new Set();
// Idempotency keys of purchases and the prices they state, each kept until the outcome is known. A
// repeat uses the same key and price.
const keys = new Map();
// Aborts the requests of a user when another user logs in.
let visit = new AbortController();

// The code for each end of a ticket without an order of its own, and when to buy again.
const REFUSED = {
  already_ordered: { code: 'already_ordered', waitS: 0 },
  sold_out: { code: 'sold_out', waitS: 0 },
  refused: { code: 'ticket_refused', waitS: 2 },
  lost: { code: 'ticket_lost', waitS: 0 },
  dead: { code: 'ticket_dead', waitS: 0 },
};

/** Whether a purchase of this voucher is in progress; a second click is then ignored. */
export function isRunning(voucherId) {
  return running.has(voucherId);
}

/** Forgets the keys of the former user. */
export function forgetKeys() {
  keys.clear();
  visit.abort();
  visit = new AbortController();
}

/**
 * Buys at the price that the page shows, or not at all. `onAsking(n, of)` is called before each
 * question about an unclear outcome, `onPending(ticket)` each time the service says that the
 * purchase waits in the queue.
 */
export async function buy(voucherId, priceCents, { onAsking, onPending }) {
  if (running.has(voucherId)) return null;
  running.add(voucherId);
  try {
    if (!keys.has(voucherId)) keys.set(voucherId, { key: uuid(), priceCents });
    const stated = keys.get(voucherId);
    const answer = await request('POST', `/api/vouchers/${encodeURIComponent(voucherId)}/orders`, {
      body: { price_cents: stated.priceCents },
      headers: { 'Idempotency-Key': stated.key },
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
  // A problem has a ticket where the admission is unknown; the ticket will say.
  const ticketId = status === 202 ? body?.ticket?.id : problem?.ticket_id;
  if (ticketId) return { kind: 'queued', ticketId, answer };
  const clear = problem && ((status >= 400 && status < 500)
    || (status === 503 && problem.executed === false));
  if (!clear) return { kind: 'unknown', code: 'outcome_unknown', orderId, answer };
  const code = problem.code ?? '';
  const waitS = answer.retryAfterS ?? (status === 503 ? 2 : DEFAULT_WAIT_S[code] ?? 0);
  return { kind: 'refused', code, orderId, waitS, answer };
}

// The outcome of a ticket; unknown if it has not ended in time, or is no longer found.
async function outcomeOf({ ticketId, answer: given }, onPending) {
  const { signal } = visit;
  const { ticket, answer } = await follow(ticketId, { onPending, signal });
  const said = answer ?? given;
  const orderId = ticket?.order_id ?? null;
  if (ticket?.status === 'bought') {
    // The order has the price and the time to pay; without it the purchase still counts.
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

// Reads the order by its id if there is one; else looks for the voucher among the newest orders.
async function lookUp(voucherId, orderId) {
  if (orderId) {
    const answer = await request('GET', `/api/orders/${encodeURIComponent(orderId)}`);
    return { order: answer.status === 200 ? answer.body?.order : null, answer };
  }
  const answer = await request('GET', '/api/orders?limit=20');
  const orders = answer.status === 200 ? answer.body?.orders ?? [] : [];
  return { order: orders.find((order) => order.voucher_id === voucherId), answer };
}
