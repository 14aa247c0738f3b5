// One order as a line of the list: its data, its status and its actions.

import * as clock from './clock.js';
import {
  announce, byId, countdown, fromTemplate, fullTime, isOff, money, setOff, setText,
} from './dom.js';
import { t } from './language.js';
import * as session from './session.js';
import { isSettling, settle } from './settle.js';
import { answerWords, askingAgainWords, settleWords } from './words.js';

const STATUSES = ['unpaid', 'paid', 'cancelled'];
// The time left to pay is emphasised below this.
const NEAR_MS = 60_000;
// How long after its time to pay an order that still looks unpaid is read again.
const LATE_MS = 2_000;

export class OrderLine {
  /** @param onLate called with the line when its time to pay is over and it should be read again */
  constructor(order, onLate) {
    const { root, parts } = fromTemplate('order-template');
    this.root = root;
    this.parts = parts;
    this.onLate = onLate;
    this.working = '';
    const titleId = `order-${order.id}`;
    parts.title.id = titleId;
    for (const action of ['pay', 'cancel']) {
      parts[action].setAttribute('aria-describedby', titleId);
      parts[action].addEventListener('click', () => {
        if (!isOff(parts[action])) void this.run(action);
      });
    }
    this.update(order);
  }

  update(order) {
    this.order = order;
    this.payByMs = clock.parseTime(order.pay_by);
    this.askedLate = false;
    const { parts } = this;
    setText(parts.title, order.voucher_title);
    setText(parts.when, fullTime(clock.parseTime(order.created_at)));
    parts.when.dateTime = order.created_at;
    setText(parts.id, order.id);
    parts.id.href = `#/orders/${encodeURIComponent(order.id)}`;
    setText(parts.price, money(order.price_cents));
    const status = order.status ?? 'unpaid';
    this.root.dataset.status = status;
    setText(parts.status, STATUSES.includes(status) ? t(`order.${status}`) : status);
    setText(parts.settled, settledText(order));
    const hadFocus = [parts.pay, parts.cancel].includes(document.activeElement);
    parts.actions.hidden = status !== 'unpaid';
    if (hadFocus && parts.actions.hidden) parts.title.focus();
    this.draw(clock.now());
  }

  /** Draws what the time changes. */
  draw(nowMs) {
    const { parts, order } = this;
    const counts = order.status === 'unpaid' && Number.isFinite(this.payByMs);
    parts.left.hidden = !counts;
    if (counts) {
      const leftMs = this.payByMs - nowMs;
      setText(parts.digits, countdown(leftMs));
      parts.left.classList.toggle('near', leftMs <= NEAR_MS);
      if (leftMs < -LATE_MS && !this.askedLate && !isSettling(order.id)) {
        this.askedLate = true;
        this.onLate(this);
      }
    }
    for (const action of ['pay', 'cancel']) {
      parts[action].classList.toggle('working', this.working === action);
      setOff(parts[action], this.working !== '');
    }
    const price = money(order.price_cents);
    setText(parts.pay, this.working === 'pay' ? t('order.paying') : t('order.pay', { price }));
    setText(parts.cancel, t(this.working === 'cancel' ? 'order.cancelling' : 'order.cancel'));
  }

  async run(action) {
    const who = session.session();
    if (!who || isSettling(this.order.id)) return;
    if (action === 'cancel' && !(await confirmed(this.order))) return;
    // The user or the order may have changed while the dialog was open.
    if (session.session() !== who || this.order.status !== 'unpaid') return;
    this.working = action;
    this.draw(clock.now());
    const outcome = await settle(action, this.order.id, () => {
      this.say(askingAgainWords(), '');
    });
    this.working = '';
    if (!outcome || session.session() !== who) return;
    if (outcome.order) this.update(outcome.order);
    const words = settleWords(action, outcome, this.order);
    this.say(words, answerWords(outcome.answer, words.tone === 'bad'));
    announce(`${this.order.voucher_title}: ${words.title} ${words.text}`);
    this.draw(clock.now());
    // The order has another status than this page shows.
    if (['order_paid', 'order_cancelled', 'order_not_found'].includes(outcome.code)) {
      this.onLate(this);
    }
  }

  say({ tone, title, text }, foot) {
    const { parts } = this;
    parts.note.hidden = false;
    parts.note.dataset.tone = tone;
    setText(parts['note-title'], title);
    setText(parts['note-text'], text);
    setText(parts['note-foot'], foot);
  }
}

function settledText(order) {
  const when = fullTime(clock.parseTime(order.settled_at));
  if (!when) return '';
  if (order.status === 'paid') return when;
  return t(order.cancelled_by === 'time_out' ? 'order.by_time' : 'order.by_you', { when });
}

/** Asks whether to cancel; resolves to true if so. */
function confirmed(order) {
  const dialog = byId('sure');
  setText(byId('sure-text'), t('sure.text', { voucher: order.voucher_title }));
  dialog.returnValue = '';
  dialog.showModal();
  return new Promise((tell) => {
    dialog.addEventListener('close', () => tell(dialog.returnValue === 'yes'), { once: true });
  });
}
