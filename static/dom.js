// Small helpers for the page: finding parts, setting text, formatting money and times.
// Text from the service reaches the page by textContent only, never as markup.

import { locale, t } from './language.js';

/** The element with this id; a missing one is a mistake in index.html. */
export function byId(id) {
  const found = document.getElementById(id);
  if (!found) throw new Error(`index.html has no #${id}`);
  return found;
}

/** A copy of a template's first element, with its `data-part` elements by name. */
export function fromTemplate(id) {
  const root = byId(id).content.firstElementChild.cloneNode(true);
  const parts = {};
  for (const node of root.querySelectorAll('[data-part]')) parts[node.dataset.part] = node;
  return { root, parts };
}

/** A new element with a class and children (strings become text nodes). */
export function el(tag, className, ...children) {
  const node = document.createElement(tag);
  if (className) node.className = className;
  node.append(...children);
  return node;
}

/** Writes text only where it differs, so that screen readers do not repeat it. */
export function setText(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

/** Like `disabled`, but the button keeps the focus; its click handler must look at `isOff`. */
export function setOff(button, off) {
  if (off) button.setAttribute('aria-disabled', 'true');
  else button.removeAttribute('aria-disabled');
}

export function isOff(button) {
  return button.getAttribute('aria-disabled') === 'true';
}

// How long announcements stay in the region, and how many.
const SAID_FOR_MS = 20_000;
const SAID_AT_MOST = 8;

/** Announces a text to screen readers; the page shows the same. */
export function announce(text) {
  const region = byId('hear');
  // One line each, because several tickets may end at the same moment.
  const line = el('p', '', text);
  region.append(line);
  while (region.childElementCount > SAID_AT_MOST) region.firstElementChild.remove();
  setTimeout(() => line.remove(), SAID_FOR_MS);
}

const formats = new Map(); // of `Intl`, by language and use: they are slow to make

function format(use, make) {
  const key = `${locale()} ${use}`;
  if (!formats.has(key)) formats.set(key, make(locale()));
  return formats.get(key);
}

/** 8000 -> "¥80", 8050 -> "¥80.50". */
export function money(cents) {
  if (!Number.isFinite(cents)) return '–';
  const digits = cents % 100 === 0 ? 0 : 2;
  const yuan = format(`yuan ${digits}`, (language) => new Intl.NumberFormat(language, {
    style: 'currency',
    currency: 'CNY',
    currencyDisplay: 'narrowSymbol',
    minimumFractionDigits: digits,
    maximumFractionDigits: digits,
  }));
  return yuan.format(cents / 100);
}

/** 12_000 -> "12,000". */
export function count(number) {
  return format('count', (language) => new Intl.NumberFormat(language)).format(number);
}

/** "Wed 12 Mar, 10:00 – Thu 13 Mar, 10:00"; the browser leaves out what both ends share. */
export function timeWindow(startMs, endMs) {
  if (!Number.isFinite(startMs) || !Number.isFinite(endMs)) return '';
  const dayAndTime = format('window', (language) => new Intl.DateTimeFormat(language, {
    weekday: 'short', day: 'numeric', month: 'short', hour: '2-digit', minute: '2-digit',
  }));
  return dayAndTime.formatRange(startMs, Math.max(startMs, endMs));
}

export function fullTime(ms) {
  if (!Number.isFinite(ms)) return '';
  const styles = { dateStyle: 'medium', timeStyle: 'medium' };
  return format('full', (language) => new Intl.DateTimeFormat(language, styles)).format(ms);
}

/** 3_725_000 -> "01:02:05"; two days and more -> "2 d 03 h". Rounds up: 0 only when it is over. */
export function countdown(leftMs) {
  const seconds = Math.max(0, Math.ceil(leftMs / 1000));
  const two = (n) => String(n).padStart(2, '0');
  const days = Math.floor(seconds / 86_400);
  const hours = Math.floor(seconds / 3600);
  if (days >= 2) return t('count.days', { days, hours: two(hours % 24) });
  const rest = `${two(Math.floor(seconds / 60) % 60)}:${two(seconds % 60)}`;
  return hours > 0 ? `${two(hours)}:${rest}` : rest;
}
