// The page's texts for each outcome of a purchase: { tone, title, text }, with the tones good, calm
// and bad. Every text about a refusal says that nothing was bought.

import { duration, explain } from './http.js';
import { parseTime } from './clock.js';
import { fullTime, money } from './dom.js';

// The service refused the request before anything was written.
const BUSY = {
  overloaded: 'Too many people are buying at this moment.',
  dependency_unavailable: 'A part of the service does not answer.',
  lock_lost: 'The service lost the lock of your purchase.',
  draining: 'This replica is restarting; the others serve.',
};

const REFUSED = {
  already_ordered: calm('You already ordered this one.', 'One each, also if it was cancelled: '
    + 'nothing more was bought.'),
  sold_out: calm('Sold out.', 'Nothing was bought. If more are added, the button comes back.'),
  not_started: calm('Not open yet.', 'By the service’s clock the sale has not begun. '
    + 'Nothing was bought.'),
  ended: calm('The sale is over.', 'It ended before your order came in. Nothing was bought.'),
  not_on_sale: calm('No longer on sale.', 'This voucher was withdrawn. Nothing was bought.'),
  voucher_not_found: calm('No longer on sale.', 'This voucher is gone. Nothing was bought.'),
  unauthorized: bad('Please log in again.', 'Your login is no longer valid. Nothing was bought.'),
  ticket_lost: bad('Your place was lost.', 'The service lost its queue. Nothing was bought; you '
    + 'may buy again.'),
  ticket_dead: bad('This went wrong on our side.', 'Your order could not be written in five '
    + 'tries, so nothing was bought. If the operators place it later, it is in My orders.'),
};

/** @param outcome of purchase.js  @param voucher as the service lists it */
export function outcomeWords({ kind, code, waitS, order, answer }, voucher) {
  if (code === 'found_out') {
    return good('It is yours after all.', 'The first answer was unclear, but the order exists.');
  }
  if (kind === 'bought') return good('It is yours.', boughtText(order));
  if (code === 'still_queued') {
    return bad('We do not know yet.', 'Your order was in the queue at the last answer. Look at My '
      + 'orders in a minute. Or buy again: you keep your place, and get one order at most.');
  }
  if (kind === 'unknown') {
    return bad('We do not know whether you got it.', 'No clear answer came within 25 seconds. '
      + 'Look at My orders in a minute. Or buy again: you get one order at most.');
  }
  if (REFUSED[code]) return REFUSED[code];
  const again = waitS ? `Try again in ${duration(waitS)}.` : 'Try again.';
  if (code === 'order_in_progress' || code === 'request_in_progress') {
    return calm('One order at a time.', 'Another order of yours is in progress. '
      + `This click bought nothing. ${again}`);
  }
  if (code === 'too_many_requests') {
    return calm('Not so often.', 'You asked more often than this sale allows. '
      + `Nothing was bought. ${again}`);
  }
  if (code === 'ticket_refused') {
    return bad('Not this time.', 'Your order waited in the queue and could not be written in time. '
      + `Nothing was bought. ${again}`);
  }
  if (BUSY[code]) return bad('Not this time.', `${BUSY[code]} Nothing was bought. ${again}`);
  return bad(`Not bought: ${voucher.title}.`, explain(answer));
}

function boughtText(order) {
  if (!order) return 'Pay for it in My orders.';
  const price = money(order.price_cents);
  const untilMs = parseTime(order.pay_by);
  if (order.status !== 'unpaid') return `Bought for ${price}.`;
  if (!Number.isFinite(untilMs)) return `Kept for you for ${price}. Pay for it in My orders.`;
  return `Kept for you for ${price}. Pay for it in My orders until ${fullTime(untilMs)}, `
    + 'or it is sold again.';
}

const SETTLED = {
  payment_declined: bad('Payment declined.', 'Nothing was paid. The order is still yours to pay.'),
  payments_unavailable: bad('No payments here.', 'This deployment has no payment provider. '
    + 'Nothing was paid.'),
  order_cancelled: calm('Too late to pay.', 'The order is cancelled. Nothing was paid.'),
  order_paid: calm('Already paid.', 'A paid order cannot be cancelled any more.'),
  order_not_found: calm('No such order.', 'It is not there any more.'),
  unauthorized: bad('Please log in again.', 'Your login is no longer valid. Nothing was done.'),
};

/** @param action 'pay' or 'cancel'  @param outcome of settle.js */
export function settleWords(action, { kind, code, waitS, answer }, order) {
  if (kind === 'done' && action === 'pay') {
    return good('Paid.', `${money(order.price_cents)}, and it is yours for good.`);
  }
  if (kind === 'done') {
    return calm('Cancelled.', 'It is sold again. You cannot buy this voucher again.');
  }
  if (kind === 'unknown') {
    return bad('No clear answer.', 'It may or may not be done. Try again: it is done once.');
  }
  if (SETTLED[code]) return SETTLED[code];
  const again = waitS ? `Try again in ${duration(waitS)}.` : 'Try again.';
  if (BUSY[code]) return bad('Not this time.', `Nothing was done. ${again}`);
  return bad('That did not work.', explain(answer));
}

/** The text while an unclear outcome is looked up. */
export function askingWords(outOf) {
  return calm('No clear answer yet.', 'It may or may not be bought. Asking the service for your '
    + `order, up to ${outOf} times …`);
}

/** The text while the purchase waits in the queue. */
export function queuedWords() {
  return calm('You are in the queue.', 'Your order is being written. This page says when that '
    + 'is done. You may leave it, and look at My orders later.');
}

/** "answered by replica-2 in 34 ms" */
export function answerWords({ replica, ms, failure, requestId }, withRequestId) {
  if (failure) return `no answer after ${ms}\u00a0ms`;
  const by = `answered by ${replica || 'no replica'} in ${ms}\u00a0ms`;
  return withRequestId && requestId ? `${by} · request ${requestId}` : by;
}

function good(title, text) {
  return { tone: 'good', title, text };
}

function calm(title, text) {
  return { tone: 'calm', title, text };
}

function bad(title, text) {
  return { tone: 'bad', title, text };
}
