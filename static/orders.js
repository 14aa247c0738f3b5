// My orders, newest first, page by page; or one order by its id.

import * as clock from './clock.js';
import { explain, request } from './http.js';
import { announce, byId, setOff, setText, isOff } from './dom.js';
import { t } from './language.js';
import { OrderLine } from './order.js';
import * as session from './session.js';
import { forgetKeys } from './settle.js';

const PAGE = 20;

let lines = []; // of the orders that are shown
let tickTimer = 0;
let cursor = null;
let visit = 0; // answers for an earlier visit of this view are ignored

export function init({ openLogin }) {
  byId('orders-more').addEventListener('click', () => {
    if (!isOff(byId('orders-more'))) void more();
  });
  session.onChange(forgetKeys);
  byId('orders-login').addEventListener('click', () => openLogin(t('login.to_see')));
}

/** Shows all orders (orderId null) or one. */
export async function open(orderId) {
  visit += 1;
  cursor = null;
  lines = [];
  byId('orders').replaceChildren();
  byId('orders-more').hidden = true;
  byId('orders-all').hidden = orderId === null;
  setText(byId('orders-title'), t(orderId === null ? 'orders.title' : 'orders.one'));
  const out = session.session() === null;
  byId('orders-login').hidden = !out;
  if (out) note(t('orders.out'));
  else if (orderId === null) await more();
  else await one(orderId);
}

/** Leaves the view; later answers are ignored. */
export function close() {
  visit += 1;
  clearTimeout(tickTimer);
}

async function more() {
  const button = byId('orders-more');
  const ofVisit = visit;
  const first = byId('orders').childElementCount === 0;
  if (first) note(t('orders.looking'));
  setOff(button, true);
  const query = cursor ? `&cursor=${encodeURIComponent(cursor)}` : '';
  const answer = await request('GET', `/api/orders?limit=${PAGE}${query}`);
  if (ofVisit !== visit) return;
  setOff(button, false);
  if (answer.status !== 200 || !Array.isArray(answer.body?.orders)) {
    button.hidden = false;
    setText(button, t('orders.retry'));
    note(explain(answer));
    return;
  }
  const { orders, next_cursor: next } = answer.body;
  cursor = next ?? null;
  const added = orders.map(show);
  setText(button, t('orders.more'));
  const hadFocus = document.activeElement === button;
  button.hidden = cursor === null;
  note(first && orders.length === 0 ? t('orders.none') : '');
  if (!first) {
    announce(t(cursor ? 'orders.added' : 'orders.added_all', { count: orders.length }));
    if (hadFocus) added[0]?.parts.title.focus();
  }
}

async function one(orderId) {
  const ofVisit = visit;
  note(t('orders.looking'));
  const answer = await request('GET', `/api/orders/${encodeURIComponent(orderId)}`);
  if (ofVisit !== visit) return;
  const order = answer.status === 200 ? answer.body?.order : null;
  if (order) {
    show(order);
    note('');
  } else if (answer.problem?.code === 'order_not_found') {
    note(t('orders.unknown', { id: orderId }));
  } else {
    note(explain(answer));
  }
}

function show(order) {
  const line = new OrderLine(order, refresh);
  lines.push(line);
  byId('orders').append(line.root);
  tick();
  return line;
}

// Redraws the time left to pay, at each full second of the service.
function tick() {
  clearTimeout(tickTimer);
  const nowMs = clock.now();
  for (const line of lines) line.draw(nowMs);
  const counts = lines.some((line) => Number.isFinite(line.payByMs));
  if (counts) tickTimer = setTimeout(tick, 1002 - (nowMs % 1000));
}

// Reads an order again.
async function refresh(line) {
  const answer = await request('GET', `/api/orders/${encodeURIComponent(line.order.id)}`);
  if (!lines.includes(line) || answer.status !== 200 || !answer.body?.order) return;
  line.update(answer.body.order);
}

function note(text) {
  const node = byId('orders-note');
  node.hidden = text === '';
  setText(node, text);
}
