// Who is logged in. The token lives in sessionStorage: it is gone with the tab, and other tabs do
// not share it. Where storage is forbidden it lives in memory only. When it has run out is for the
// service to say (401): this computer's clock may be wrong.

const KEY = 'seckill.session';

let current = null; // { token, user: { id, phone, role } }
const listeners = new Set();

/** The session, or null. */
export function session() {
  return current;
}

/** Called with the session (or null) and a notice for the person (or '') at each change. */
export function onChange(listener) {
  listeners.add(listener);
}

/** Takes the answer of POST /api/login. */
export function begin({ token, user }) {
  current = { token, user };
  store();
  tell('');
}

/** Logs out; the notice says why, unless the person asked for it. */
export function end(notice = '') {
  if (!current) return;
  current = null;
  store();
  tell(notice);
}

/** Takes up what this tab kept from before a reload. */
export function restore() {
  try {
    const kept = JSON.parse(sessionStorage.getItem(KEY));
    if (typeof kept?.token === 'string' && kept.user) current = kept;
  } catch {
    current = null;
  }
  tell('');
}

function store() {
  try {
    if (current) sessionStorage.setItem(KEY, JSON.stringify(current));
    else sessionStorage.removeItem(KEY);
  } catch {
    // Memory only, then.
  }
}

function tell(notice) {
  for (const listener of listeners) listener(current, notice);
}
