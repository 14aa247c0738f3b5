// My orders, newest first, page by page; or one order by its id.

import { explain, request } from './http.js';
import { parseTime } from './clock.js';
import { announce, byId, fromTemplate, fullTime, money, setOff, setText, isOff } from './dom.js';
import * as session from './session.js';

const PAGE = 20;

let cursor = null;
let visit = 0; // an answer for a view that was left is thrown away

export function init({ openLogin }) {
  byId('orders-more').addEventListener('click', () => {
    if (!isOff(byId('orders-more'))) void more();
  });
  byId('orders-login').addEventListener('click', () => openLogin('Log in to see your orders.'));
}

/** Shows all orders (orderId null) or one. */
export async function open(orderId) {
  visit += 1;
  cursor = null;
  byId('orders').replaceChildren();
  byId('orders-more').hidden = true;
  byId('orders-all').hidden = orderId === null;
  setText(byId('orders-title'), orderId === null ? 'My orders' : 'One order');
  const out = session.session() === null;
  byId('orders-login').hidden = !out;
  if (out) note('Log in to see what you bought.');
  else if (orderId === null) await more();
  else await one(orderId);
}

/** Leaves the view: late answers change nothing. */
export function close() {
  visit += 1;
}

async function more() {
  const button = byId('orders-more');
  const ofVisit = visit;
  const first = byId('orders').childElementCount === 0;
  if (first) note('Looking …');
  setOff(button, true);
  const query = cursor ? `&cursor=${encodeURIComponent(cursor)}` : '';
  const answer = await request('GET', `/api/orders?limit=${PAGE}${query}`);
  if (ofVisit !== visit) return;
  setOff(button, false);
  if (answer.status !== 200 || !Array.isArray(answer.body?.orders)) {
    button.hidden = false;
    setText(button, 'Try again');
    note(explain(answer));
    return;
  }
  const { orders, next_cursor: next } = answer.body;
  cursor = next ?? null;
  const lines = orders.map(line);
  byId('orders').append(...lines);
  setText(button, 'More orders');
  const hadFocus = document.activeElement === button;
  button.hidden = cursor === null;
  note(first && orders.length === 0 ? 'Nothing bought yet.' : '');
  if (!first) {
    announce(`${orders.length} more, ${cursor ? 'and there are still more' : 'that was all'}.`);
    if (hadFocus) lines[0]?.querySelector('h2').focus();
  }
}

async function one(orderId) {
  const ofVisit = visit;
  note('Looking …');
  const answer = await request('GET', `/api/orders/${encodeURIComponent(orderId)}`);
  if (ofVisit !== visit) return;
  const order = answer.status === 200 ? answer.body?.order : null;
  if (order) {
    byId('orders').append(line(order));
    note('');
  } else if (answer.problem?.code === 'order_not_found') {
    note(`You have no order ${orderId}.`);
  } else {
    note(explain(answer));
  }
}

function line(order) {
  const { root, parts } = fromTemplate('order-template');
  const created = parseTime(order.created_at);
  setText(parts.title, order.voucher_title);
  setText(parts.when, fullTime(created));
  parts.when.dateTime = order.created_at;
  setText(parts.id, order.id);
  parts.id.href = `#/orders/${encodeURIComponent(order.id)}`;
  setText(parts.price, money(order.price_cents));
  return root;
}

function note(text) {
  const node = byId('orders-note');
  node.hidden = text === '';
  setText(node, text);
}
