// The page's composition: routes, the account button, the banner, and which view polls.

import * as clock from './clock.js';
import { announce, byId, setText } from './dom.js';
import { applyTexts, onLanguage, switchLanguage, t } from './language.js';
import * as login from './login.js';
import { request } from './http.js';
import * as orders from './orders.js';
import * as replicas from './replicas.js';
import * as session from './session.js';
import * as vouchers from './vouchers.js';

const VIEWS = ['vouchers', 'orders'];

let trouble = ''; // why the service cannot be reached
let notice = ''; // the key of a text, such as why the user was logged out
let shown = ''; // the name of the view

/** "#/orders/17" -> { name: 'orders', id: '17' }; null for other fragments, such as "#main". */
function route() {
  const hash = location.hash || '#/';
  if (!hash.startsWith('#/')) return null;
  const [name, id] = hash.slice(2).split('/');
  if (name !== 'orders') return { name: 'vouchers', id: null };
  try {
    return { name, id: id ? decodeURIComponent(id) : null };
  } catch {
    return { name, id: null };
  }
}

function go({ moveFocus }) {
  const to = route();
  if (!to) return;
  if (to.name !== 'orders') orders.close();
  shown = to.name;
  for (const name of VIEWS) {
    byId(`view-${name}`).hidden = name !== to.name;
    const link = document.querySelector(`[data-route=${name}]`);
    if (name === to.name) link.setAttribute('aria-current', 'page');
    else link.removeAttribute('aria-current');
  }
  drawTitle();
  // The one strip of answers moves to the view that is shown.
  document.querySelector(`#view-${to.name} [data-slot=replicas]`).append(byId('answers'));
  wake();
  if (to.name === 'orders') void orders.open(to.id);
  if (moveFocus) byId(`${to.name}-title`).focus();
}

function drawTitle() {
  const voucher = vouchers.unseenRestock();
  const view = voucher ? t('restock.unseen', { voucher }) : t(`nav.${shown}`);
  document.title = t('title', { view });
}

function wake() {
  vouchers.setActive(shown === 'vouchers' && !document.hidden && navigator.onLine);
}

function drawBanner() {
  const parts = [navigator.onLine ? '' : t('banner.offline'), notice && t(notice)];
  if (navigator.onLine) parts.push(trouble);
  setText(byId('banner'), parts.filter(Boolean).join(' '));
}

// Earlier messages stay in their language; all else is drawn again.
function redraw() {
  drawTitle();
  drawAccount(session.session());
  drawBanner();
  vouchers.redraw();
  if (shown === 'orders') void orders.open(route()?.id ?? null);
}

function drawAccount(current) {
  byId('who').hidden = !current;
  setText(byId('who'), current?.user.phone ?? '');
  setText(byId('account'), t(current ? 'account.out' : 'account.in'));
}

function start() {
  applyTexts();
  replicas.init();
  login.init();
  orders.init({ openLogin: login.open });
  vouchers.init({
    openLogin: login.open,
    setBanner(text) {
      trouble = text;
      drawBanner();
    },
    drawTitle,
  });
  session.onChange((current, why) => {
    notice = why;
    drawAccount(current);
    drawBanner();
    if (shown === 'orders') void orders.open(route()?.id ?? null);
  });
  byId('account').addEventListener('click', () => {
    if (session.session()) {
      // The service ends the token too; the page does not wait for it.
      void request('POST', '/api/logout');
      session.end();
      announce(t('account.is_out'));
    } else {
      login.open();
    }
  });
  byId('language').addEventListener('click', switchLanguage);
  onLanguage(redraw);
  window.addEventListener('hashchange', () => go({ moveFocus: true }));
  for (const event of ['online', 'offline']) {
    window.addEventListener(event, () => { wake(); drawBanner(); });
  }
  document.addEventListener('visibilitychange', () => {
    if (!document.hidden) clock.distrust();
    wake();
  });
  window.addEventListener('focus', () => {
    clock.distrust();
    vouchers.refresh();
  });
  session.restore();
  go({ moveFocus: false });
  drawBanner();
}

start();
