// The list of vouchers: polls it, keeps the tickets, and runs the purchase of a click.

import * as clock from './clock.js';
import { explain, request } from './http.js';
import { announce, byId, setText } from './dom.js';
import { t } from './language.js';
import { buy, forgetKeys, isRunning } from './purchase.js';
import { watchRestock } from './restock.js';
import * as session from './session.js';
import { Ticket } from './ticket.js';
import {
  answerWords, askingWords, newPriceWords, outcomeWords, queuedWords, restockWords,
} from './words.js';

// Waits between two polls of the stock; each is varied by 15 % either way.
const POLL_OPEN_MS = 2_000;
const POLL_SOON_MS = 5_000;
const POLL_IDLE_MS = 20_000;
const POLL_MAX_MS = 30_000;
const SOON_MS = 60_000;
const NEW_PRICE_MS = 1_000;
// The longest time that a button stays off, whatever `Retry-After` says.
const WAIT_MAX_S = 120;

const tickets = new Map(); // voucher id -> Ticket
const mine = new Map(); // voucher id -> { id, status } of the user's order
// voucher id -> { abort, available, unseen }: a sold-out voucher is watched. `unseen` is its title
// if a unit came back while the page was not active.
const watches = new Map();
let active = false; // shown, in a visible tab, online
let pollTimer = 0;
let tickTimer = 0;
let polledMs = -Infinity;
let failures = 0;
let lastFailure = null; // the answer that the banner explains
let round = 0; // of polling: an answer of an earlier round must not start a second chain
let callbacks = { openLogin() {}, setBanner() {}, drawTitle() {} };

/** @param given { openLogin(why), setBanner(text), drawTitle() } */
export function init(given) {
  callbacks = given;
  session.onChange(() => {
    mine.clear();
    forgetKeys();
    for (const id of [...watches.keys()]) unwatch(id);
    for (const ticket of tickets.values()) {
      own(ticket);
      ticket.hush();
    }
    tick();
    void loadMine();
  });
}

/** Starts or stops polling; called when the view, the tab or the network comes or goes. */
export function setActive(wanted) {
  if (wanted === active) return;
  active = wanted;
  clearTimeout(pollTimer);
  clearTimeout(tickTimer);
  round += 1;
  if (active) {
    failures = 0;
    for (const watched of watches.values()) watched.unseen = null;
    callbacks.drawTitle();
    tick();
    void poll();
    void loadMine();
  }
}

/** The title of a voucher of which a unit came back while the page was not active, if one did. */
export function unseenRestock() {
  return [...watches.values()].find((watched) => watched.unseen)?.unseen ?? null;
}

/** Polls now, unless the last poll was less than 2 s ago: for a return to the window. */
export function refresh() {
  if (!active || performance.now() - polledMs < POLL_OPEN_MS) return;
  clearTimeout(pollTimer);
  round += 1;
  void poll();
}

/** Draws all tickets anew, in another language; what a slip says is taken away. */
export function redraw() {
  setText(byId('no-tickets'), t('ticket.none'));
  drawBanner();
  for (const ticket of tickets.values()) {
    if (ticket.queued) ticket.say(queuedWords(ticket.place), '');
    else if (!ticket.buying) ticket.hush();
    ticket.redraw();
  }
  tick();
}

async function poll() {
  const ofRound = round;
  polledMs = performance.now();
  const answer = await request('GET', '/api/vouchers', { anonymous: true });
  if (ofRound !== round) return;
  if (answer.status === 200 && Array.isArray(answer.body?.vouchers)) {
    failures = 0;
    lastFailure = null;
    show(answer.body.vouchers);
  } else {
    failures += 1;
    lastFailure = answer;
  }
  drawBanner();
  const delayMs = pollDelayMs(answer);
  pollTimer = setTimeout(poll, delayMs);
}

function drawBanner() {
  if (!lastFailure) {
    callbacks.setBanner('');
    return;
  }
  // No seconds in this text: screen readers read each change of it.
  const why = explain({ ...lastFailure, retryAfterS: null });
  callbacks.setBanner(t(tickets.size ? 'banner.trouble_old' : 'banner.trouble', { why }));
}

function pollDelayMs(answer) {
  const nowMs = clock.now();
  const all = [...tickets.values()];
  let delayMs = POLL_IDLE_MS;
  if (all.some((ticket) => ticket.state === 'open')) delayMs = POLL_OPEN_MS;
  else if (all.some((ticket) => ticket.startMs > nowMs && ticket.startMs - nowMs < SOON_MS)) {
    delayMs = POLL_SOON_MS;
  }
  if (failures > 0) {
    const backoffMs = Math.min(POLL_OPEN_MS * 2 ** (failures - 1), POLL_MAX_MS);
    delayMs = Math.max(backoffMs, (answer.retryAfterS ?? 0) * 1000);
  }
  return delayMs * (0.85 + Math.random() * 0.3);
}

function show(vouchers) {
  const listed = new Set(vouchers.map((voucher) => voucher.id));
  let changed = false;
  for (const [id, ticket] of tickets) {
    if (listed.has(id) || isRunning(id)) continue;
    ticket.root.remove();
    tickets.delete(id);
    unwatch(id);
  }
  for (const voucher of vouchers) {
    const known = tickets.get(voucher.id);
    if (known) {
      // In the queued mode the database may have units that are admitted to others.
      const isGone = watches.get(voucher.id)?.available === false;
      const hasNewPrice = known.voucher.price_cents !== voucher.price_cents;
      known.update(isGone ? { ...voucher, stock: 0 } : voucher);
      if (hasNewPrice) tellNewPrice(known);
    } else {
      const ticket = new Ticket(voucher, onPress);
      own(ticket);
      tickets.set(voucher.id, ticket);
      changed = true;
    }
  }
  byId('no-tickets').hidden = tickets.size > 0;
  setText(byId('no-tickets'), t('ticket.none'));
  tick();
  if (changed) arrange();
}

// A finger on its way to the button has to see the price before it buys.
function tellNewPrice(ticket) {
  if (!['soon', 'open'].includes(ticket.state) || isRunning(ticket.voucher.id)) return;
  ticket.waitUntilMs = Math.max(ticket.waitUntilMs, clock.now() + NEW_PRICE_MS);
  notify(ticket, newPriceWords(ticket.voucher.price_cents));
}

// Sorts the tickets that can be bought first. Only when tickets are added, so that no button moves
// under a finger.
function arrange() {
  const rank = { open: 0, bought: 1, soon: 2, cancelled: 3, sold_out: 3, ended: 4 };
  const order = [...tickets.values()].sort((a, b) => rank[a.state] - rank[b.state]
    || (a.state === 'soon' ? a.startMs - b.startMs : 0));
  const focused = document.activeElement;
  byId('tickets').append(...order.map((ticket) => ticket.root));
  if (focused?.isConnected && focused !== document.body) focused.focus({ preventScroll: true });
}

// Redraws what depends on the time: at each full second of the service, and when a sale opens.
function tick() {
  clearTimeout(tickTimer);
  const nowMs = clock.now();
  let nextMs = 1000 - (nowMs % 1000);
  for (const ticket of tickets.values()) {
    ticket.loggedIn = session.session() !== null;
    ticket.buying = isRunning(ticket.voucher.id);
    ticket.watched = watches.has(ticket.voucher.id);
    if (ticket.tick(nowMs)) onOpened(ticket);
    nextMs = Math.min(nextMs, ticket.nextChangeMs(nowMs));
  }
  if (active) tickTimer = setTimeout(tick, Math.max(nextMs, 0) + 2);
}

function onOpened(ticket) {
  announce(t('ticket.opened', { voucher: ticket.voucher.title }));
  // All pages reach this point in the same second, so the polls are spread.
  clearTimeout(pollTimer);
  round += 1;
  pollTimer = setTimeout(poll, 300 + Math.random() * 1500);
}

function onPress(ticket) {
  if (ticket.state === 'sold_out') {
    void watch(ticket);
    notify(ticket, restockWords('waiting'));
  } else void onBuy(ticket);
}

async function onBuy(ticket) {
  const who = session.session();
  if (!who) {
    callbacks.openLogin(t('login.to_buy'));
    return;
  }
  ticket.hush();
  unwatch(ticket.voucher.id);
  const bought = buy(ticket.voucher.id, ticket.voucher.price_cents, {
    onAsking(n, outOf) {
      const words = askingWords(outOf);
      ticket.say(words, t('ticket.question', { n, all: outOf }));
      if (n === 1) announce(`${words.title} ${words.text}`);
    },
    onPending(place) {
      ticket.place = place;
      const words = queuedWords(place);
      ticket.say(words, '');
      // Announced once, although the service reports the place repeatedly.
      if (ticket.queued) return;
      ticket.queued = true;
      announce(`${ticket.voucher.title}: ${words.title} ${words.text}`);
      tick();
    },
  });
  tick();
  const outcome = await bought;
  ticket.queued = false;
  // If another user has logged in meanwhile, the outcome is not shown to them.
  const loggedOut = outcome?.answer?.status === 401 && session.session() === null;
  if (outcome && (session.session() === who || loggedOut)) settle(ticket, outcome);
  else if (outcome) ticket.hush();
  tick();
}

function settle(ticket, outcome) {
  const { id } = ticket.voucher;
  const words = outcomeWords(outcome, ticket.voucher);
  if (outcome.kind === 'bought' || outcome.code === 'already_ordered') {
    mine.set(id, { id: outcome.orderId ?? '', status: outcome.order?.status ?? '' });
    own(ticket);
    // An older order may be paid or cancelled by now.
    if (!outcome.order) void loadMine();
  }
  if (outcome.code === 'sold_out') {
    ticket.voucher.stock = 0;
    void watch(ticket);
  }
  if (outcome.code === 'price_changed') {
    ticket.update({ ...ticket.voucher, price_cents: outcome.answer.problem.price_cents });
  }
  if (outcome.code === 'not_started') clock.distrust();
  const waitS = outcome.code === 'not_started' ? 1 : outcome.waitS ?? 0;
  ticket.waitUntilMs = clock.now() + Math.min(waitS, WAIT_MAX_S) * 1000;
  ticket.say(words, answerWords(outcome.answer, words.tone === 'bad'));
  announce(`${ticket.voucher.title}: ${words.title} ${words.text}`);
}

// Waits for a unit of a voucher that was sold out, and shows when one comes back and is gone again.
async function watch(ticket) {
  const { id } = ticket.voucher;
  unwatch(id);
  const watched = { abort: new AbortController(), available: false, unseen: null };
  watches.set(id, watched);
  const isOver = await watchRestock(id, {
    isActive: () => active,
    signal: watched.abort.signal,
    onChange(available) {
      watched.available = available;
      watched.unseen = available && !active ? ticket.voucher.title : null;
      callbacks.drawTitle();
      ticket.voucher.stock = available ? Math.max(ticket.voucher.stock, 1) : 0;
      notify(ticket, restockWords(available ? 'back' : 'gone'));
    },
  });
  if (watches.get(id) === watched) unwatch(id);
  if (isOver && !watched.available) notify(ticket, restockWords('over'));
}

function notify(ticket, words) {
  ticket.say(words, '');
  announce(`${ticket.voucher.title}: ${words.title} ${words.text}`);
  tick();
}

function unwatch(id) {
  watches.get(id)?.abort.abort();
  watches.delete(id);
  callbacks.drawTitle();
}

// Marks vouchers that the user has already bought. Best effort: a purchase is refused anyway.
async function loadMine() {
  const who = session.session();
  if (!who) return;
  const answer = await request('GET', '/api/orders?limit=50');
  if (answer.status !== 200 || session.session() !== who) return;
  for (const order of answer.body?.orders ?? []) {
    mine.set(order.voucher_id, order);
  }
  for (const ticket of tickets.values()) own(ticket);
  tick();
}

function own(ticket) {
  const order = mine.get(ticket.voucher.id);
  const status = order?.status ?? '';
  // The slip is outdated once the order has another status.
  if (ticket.orderStatus && status !== ticket.orderStatus) ticket.hush();
  ticket.orderId = order?.id ?? null;
  ticket.orderStatus = status;
}
