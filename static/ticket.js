// One voucher as a ticket: its face, its stub with the button, and the slip with the last outcome.
// It shows the voucher, the service's time, the user's order and the purchase in progress.

import {
  count, countdown, fromTemplate, isOff, money, setOff, setText, timeWindow,
} from './dom.js';
import { parseTime } from './clock.js';
import { t } from './language.js';

const STAMPED = ['sold_out', 'ended', 'bought', 'cancelled'];
// The countdown is emphasised below this.
const NEAR_MS = 10_000;
const FEW = 10;
// Longer amounts are set smaller, to fit in one line.
const LONG = 8;

function setAmount(node, cents) {
  const text = money(cents);
  setText(node, text);
  node.classList.toggle('long', text.length > LONG);
}

export class Ticket {
  /** @param onPress called with the ticket when its live button is pressed */
  constructor(voucher, onPress) {
    const { root, parts } = fromTemplate('ticket-template');
    this.root = root;
    this.parts = parts;
    this.buying = false;
    this.queued = false;
    this.watched = false; // sold out, and the page says if a unit comes back
    this.place = null; // of the queued purchase, as the service says it
    this.waitUntilMs = 0;
    // The person's order: null if there is none, '' if it is known to exist, but not by its id.
    this.orderId = null;
    this.orderStatus = '';
    this.loggedIn = false;
    this.state = '';
    const titleId = `voucher-${voucher.id}`;
    parts.title.id = titleId;
    root.setAttribute('aria-labelledby', titleId);
    parts.buy.id = `buy-${voucher.id}`;
    parts.buy.setAttribute('aria-describedby', titleId);
    parts.order.setAttribute('aria-describedby', titleId);
    parts.buy.addEventListener('click', () => { if (!isOff(parts.buy)) onPress(this); });
    this.update(voucher);
  }

  update(voucher) {
    this.voucher = voucher;
    this.startMs = parseTime(voucher.starts_at);
    this.endMs = parseTime(voucher.ends_at);
    const { parts } = this;
    setAmount(parts.face, voucher.face_value_cents);
    setText(parts.title, voucher.title);
    setText(parts.description, voucher.description ?? '');
    setText(parts.serial, t('ticket.serial', { id: String(voucher.id).padStart(6, '0') }));
    setText(parts.window, timeWindow(this.startMs, this.endMs));
    setAmount(parts.price, voucher.price_cents);
    const off = Math.round((1 - voucher.price_cents / voucher.face_value_cents) * 100);
    setText(parts.saving, off > 0 ? t('ticket.off', { percent: off }) : '');
  }

  /** Draws what the time changes. Returns true if the voucher has just opened. */
  tick(nowMs) {
    const state = this.stateAt(nowMs);
    const opened = this.state === 'soon' && state === 'open';
    if (state !== this.state) this.enter(state);
    this.drawCount(nowMs);
    this.drawStock();
    this.drawButton(nowMs);
    return opened;
  }

  /** When `tick` is next worth calling for something other than the seconds, in ms from now. */
  nextChangeMs(nowMs) {
    const coming = [this.startMs, this.endMs, this.waitUntilMs].filter((ms) => ms > nowMs);
    return Math.min(...coming) - nowMs;
  }

  stateAt(nowMs) {
    if (this.orderId !== null) return this.orderStatus === 'cancelled' ? 'cancelled' : 'bought';
    if (nowMs < this.startMs) return 'soon';
    if (nowMs >= this.endMs) return 'ended';
    return this.voucher.stock > 0 ? 'open' : 'sold_out';
  }

  /** Writes everything again, in the language that is chosen now. */
  redraw() {
    this.update(this.voucher);
    this.state = '';
  }

  enter(state) {
    this.state = state;
    this.root.dataset.state = state;
    setText(this.parts.state, t(`state.${state}`));
    setText(this.parts.stamp, STAMPED.includes(state) ? t(`state.${state}`) : '');
    const hadFocus = document.activeElement === this.parts.buy;
    const mine = this.orderId !== null;
    this.parts.order.hidden = !mine;
    this.parts.buy.hidden = mine;
    if (mine) {
      this.parts.order.href = `#/orders/${encodeURIComponent(this.orderId)}`;
      if (hadFocus) this.parts.order.focus();
    }
  }

  drawCount(nowMs) {
    const { count: line, 'count-label': label, digits } = this.parts;
    const target = { soon: this.startMs, open: this.endMs }[this.state];
    line.hidden = target === undefined;
    if (line.hidden) return;
    setText(label, t(this.state === 'soon' ? 'ticket.opens' : 'ticket.closes'));
    setText(digits, countdown(target - nowMs));
    line.classList.toggle('near', this.state === 'soon' && target - nowMs <= NEAR_MS);
  }

  drawStock() {
    const { stock } = this.voucher;
    const shown = this.state === 'soon' || this.state === 'open';
    this.parts.stock.hidden = !shown;
    if (!shown) return;
    const few = this.state === 'open' && stock <= FEW;
    this.parts.stock.classList.toggle('few', few);
    setText(this.parts.stock, t(few ? 'ticket.few_left' : 'ticket.left', { count: count(stock) }));
  }

  drawButton(nowMs) {
    const { buy, order } = this.parts;
    setText(order, t(this.orderStatus === 'unpaid' ? 'ticket.pay' : 'ticket.see'));
    const waitS = Math.ceil((this.waitUntilMs - nowMs) / 1000);
    buy.classList.toggle('working', this.buying);
    if (this.buying) setText(buy, t(this.queued ? 'buy.queued' : 'buy.buying'));
    else if (this.state === 'soon') setText(buy, t('buy.soon'));
    else if (this.state === 'sold_out') setText(buy, t(this.watched ? 'buy.sold_out' : 'buy.tell'));
    else if (this.state === 'ended') setText(buy, t('buy.ended'));
    else if (waitS > 0) setText(buy, t('buy.wait'));
    else if (this.loggedIn) {
      setText(buy, t('buy.for', { price: money(this.voucher.price_cents) }));
    } else setText(buy, t('buy.log_in'));
    // The style sheet shows it; in the button's name a screen reader would read each second.
    buy.dataset.wait = waitS > 0 && this.state === 'open' && !this.buying ? `${waitS} s` : '';
    const isLive = this.state === 'open' ? waitS <= 0 : this.state === 'sold_out' && !this.watched;
    setOff(buy, this.buying || !isLive);
  }

  /** Shows the slip; `words` as words.js makes them, `foot` who answered. */
  say({ tone, title, text }, foot) {
    const { parts } = this;
    parts.slip.hidden = false;
    parts.slip.dataset.tone = tone;
    setText(parts['slip-title'], title);
    setText(parts['slip-text'], text);
    setText(parts['slip-foot'], foot);
  }

  hush() {
    this.parts.slip.hidden = true;
  }
}
