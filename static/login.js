// The login dialog: a phone number, then the one-time code. In development mode the service sends
// the code in its answer; it is then filled in and the dialog says so.

import { duration, explain, request } from './http.js';
import { announce, byId, isOff, setOff, setText } from './dom.js';
import { t } from './language.js';
import * as session from './session.js';

let phone = '';
let challenge = '';
let visit = 0;

export function init() {
  const dialog = byId('login');
  byId('login-close').addEventListener('click', () => dialog.close());
  dialog.addEventListener('close', () => { visit += 1; });
  // A click on the backdrop is a click on the dialog itself, outside its box.
  dialog.addEventListener('click', (event) => {
    if (event.target === dialog && event.detail > 0 && outside(dialog, event)) dialog.close();
  });
  byId('code-back').addEventListener('click', () => showPhone());
  onSubmit('phone-form', sendCode);
  onSubmit('code-form', logIn);
}

/** Opens the dialog; closing it gives the focus back to where it was. */
export function open(why = '') {
  visit += 1;
  setText(byId('login-why'), why);
  byId('login-why').hidden = why === '';
  if (!byId('login').open) byId('login').showModal();
  showPhone();
}

function outside(dialog, { clientX: x, clientY: y }) {
  const box = dialog.getBoundingClientRect();
  return x < box.left || x > box.right || y < box.top || y > box.bottom;
}

function onSubmit(formId, act) {
  const form = byId(formId);
  const button = form.querySelector('[type=submit]');
  form.addEventListener('submit', async (event) => {
    event.preventDefault();
    if (isOff(button)) return;
    setOff(button, true);
    button.classList.add('working');
    try {
      await act();
    } finally {
      setOff(button, false);
      button.classList.remove('working');
    }
  });
}

function showPhone() {
  byId('phone-form').hidden = false;
  byId('code-form').hidden = true;
  fail('phone', '');
  byId('phone').focus();
}

function showCode(expiresInS, devCode) {
  byId('phone-form').hidden = true;
  byId('code-form').hidden = false;
  fail('code', '');
  const minutes = Math.round((expiresInS ?? 300) / 60);
  setText(byId('code-hint'), t('login.code_hint', { phone, minutes }));
  const dev = byId('code-dev');
  dev.hidden = !devCode;
  setText(dev, devCode ? t('login.code_dev', { code: devCode }) : '');
  byId('code').value = devCode ?? '';
  byId('code').focus();
  announce(devCode ? dev.textContent : t('login.code_sent'));
}

async function sendCode() {
  phone = byId('phone').value.replace(/[\s().-]/g, '');
  if (!/^\+?\d{5,20}$/.test(phone)) {
    fail('phone', t('login.phone_wrong'));
    return;
  }
  fail('phone', '');
  const ofVisit = visit;
  const answer = await request('POST', '/api/login/codes', { body: { phone }, anonymous: true });
  if (ofVisit !== visit) return;
  if (answer.status === 202) {
    challenge = answer.body?.challenge ?? '';
    showCode(answer.body?.expires_in_s, answer.body?.code);
  } else if (answer.problem?.code === 'too_many_codes') {
    fail('phone', tooMany(answer));
  } else {
    fail('phone', explain(answer));
  }
}

async function logIn() {
  const code = byId('code').value.replace(/\s/g, '');
  if (!/^\d{6}$/.test(code)) {
    fail('code', t('login.code_form'));
    return;
  }
  fail('code', '');
  const ofVisit = visit;
  const body = { phone, challenge, code };
  const answer = await request('POST', '/api/login', { body, anonymous: true });
  if (ofVisit !== visit) return;
  if (answer.status === 200 && answer.body?.token) {
    byId('login').close();
    session.begin(answer.body);
    announce(t('account.is_in'));
  } else if (answer.problem?.code === 'wrong_code') {
    fail('code', t('login.code_wrong'));
  } else {
    fail('code', explain(answer));
  }
}

function tooMany(answer) {
  if (!answer.retryAfterS) return t('login.too_many_later');
  return t('login.too_many', { wait: duration(answer.retryAfterS) });
}

function fail(field, text) {
  setText(byId(`${field}-error`), text);
  const input = byId(field);
  if (text) {
    input.setAttribute('aria-invalid', 'true');
    input.focus();
  } else {
    input.removeAttribute('aria-invalid');
  }
}
