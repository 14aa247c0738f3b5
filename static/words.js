// The page's texts for each outcome of a purchase: { tone, title, text }, with the tones good, calm
// and bad. Every text about a refusal says that nothing was bought.

import { duration, explain } from './http.js';
import { parseTime } from './clock.js';
import { count, fullTime, money } from './dom.js';
import { hasText, t } from './language.js';

// Refusals with a text of their own, and its tone.
const REFUSED = {
  already_ordered: 'calm',
  sold_out: 'calm',
  not_started: 'calm',
  ended: 'calm',
  not_on_sale: 'calm',
  voucher_not_found: 'calm',
  unauthorized: 'bad',
  ticket_lost: 'bad',
  ticket_dead: 'bad',
};

/** @param outcome of purchase.js  @param voucher as the service lists it */
export function outcomeWords({ kind, code, waitS, order, answer }, voucher) {
  if (code === 'found_out') return say('good', 'bought.found_title', t('bought.found'));
  if (kind === 'bought') return say('good', 'bought.title', boughtText(order));
  if (code === 'still_queued') return say('bad', 'buying.still_title', t('buying.still'));
  if (kind === 'unknown') return say('bad', 'buying.unknown_title', t('buying.unknown'));
  if (Object.hasOwn(REFUSED, code)) {
    return say(REFUSED[code], `refused.${code}_title`, t(`refused.${code}`));
  }
  if (code === 'price_changed') {
    const price = money(answer.problem.price_cents);
    return say('calm', 'refused.price_changed_title', t('refused.price_changed', { price }));
  }
  const again = againText(waitS);
  if (code === 'order_in_progress' || code === 'request_in_progress') {
    return say('calm', 'refused.in_progress_title', t('refused.in_progress', { again }));
  }
  if (code === 'too_many_requests') {
    return say('calm', 'refused.too_often_title', t('refused.too_often', { again }));
  }
  if (code === 'ticket_refused') {
    return say('bad', 'refused.not_now_title', t('refused.ticket_refused', { again }));
  }
  // The service refused the request before anything was written.
  if (hasText(`busy.${code}`)) {
    const why = t(`busy.${code}`);
    return say('bad', 'refused.not_now_title', t('refused.busy', { why, again }));
  }
  const title = t('refused.other_title', { voucher: voucher.title });
  return { tone: 'bad', title, text: explain(answer) };
}

function boughtText(order) {
  if (!order) return t('bought.pay_later');
  const price = money(order.price_cents);
  const untilMs = parseTime(order.pay_by);
  if (order.status !== 'unpaid') return t('bought.for', { price });
  if (!Number.isFinite(untilMs)) return t('bought.kept', { price });
  return t('bought.kept_until', { price, until: fullTime(untilMs) });
}

// Answers to a payment or cancellation with a text of their own, and its tone.
const SETTLED = {
  payment_declined: 'bad',
  payments_unavailable: 'bad',
  order_cancelled: 'calm',
  order_paid: 'calm',
  order_not_found: 'calm',
  unauthorized: 'bad',
};

/** @param action 'pay' or 'cancel'  @param outcome of settle.js */
export function settleWords(action, { kind, code, waitS, answer }, order) {
  if (kind === 'done' && action === 'pay') {
    return say('good', 'settle.paid_title', t('settle.paid', { price: money(order.price_cents) }));
  }
  if (kind === 'done') return say('calm', 'settle.cancelled_title', t('settle.cancelled'));
  if (kind === 'unknown') return say('bad', 'settle.unknown_title', t('settle.unknown'));
  if (Object.hasOwn(SETTLED, code)) {
    return say(SETTLED[code], `settle.${code}_title`, t(`settle.${code}`));
  }
  if (hasText(`busy.${code}`)) {
    return say('bad', 'settle.busy_title', t('settle.busy', { again: againText(waitS) }));
  }
  return say('bad', 'settle.other_title', explain(answer));
}

function againText(waitS) {
  return waitS ? t('again.in', { wait: duration(waitS) }) : t('again.now');
}

/** The text while an unclear outcome is looked up. */
export function askingWords(outOf) {
  return say('calm', 'buying.asking_title', t('buying.asking', { all: outOf }));
}

/** The text while the purchase waits in the queue, with its place as far as that is known. */
export function queuedWords({ users_ahead: ahead, expected_wait_s: waitS }) {
  const parts = [];
  if (ahead === 0) parts.push(t('buying.ahead_none'));
  else if (ahead === 1) parts.push(t('buying.ahead_one'));
  else if (ahead > 1) parts.push(t('buying.ahead', { count: count(ahead) }));
  if (waitS > 0) parts.push(t('buying.expected', { wait: duration(waitS) }));
  parts.push(t('buying.queued'));
  const text = parts.reduceRight((rest, first) => t('buying.sentences', { first, rest }));
  return say('calm', 'buying.queued_title', text);
}

/**
 * @param state 'waiting': it is watched; 'back': a unit can be bought again; 'gone': it was sold;
 *   'over': none came back
 */
export function restockWords(state) {
  const tone = state === 'back' ? 'good' : 'calm';
  return say(tone, `restock.${state}_title`, t(`restock.${state}`));
}

/** The text when the price changes while the page is open. */
export function newPriceWords(cents) {
  const text = t('ticket.new_price', { price: money(cents) });
  return say('calm', 'refused.price_changed_title', text);
}

/** The text while a payment or cancellation with an unclear answer is sent again. */
export function askingAgainWords() {
  return say('calm', 'settle.asking_title', t('settle.asking'));
}

/** "answered by replica-2 in 34 ms" */
export function answerWords({ replica, ms, failure, requestId }, withRequestId) {
  if (failure) return t('answers.after', { ms });
  const by = { replica: replica || t('answers.no_replica'), ms, request: requestId };
  return t(withRequestId && requestId ? 'answers.by_request' : 'answers.by', by);
}

function say(tone, titleKey, text) {
  return { tone, title: t(titleKey), text };
}
