// The user who is logged in. The token is in sessionStorage: it ends with the tab, and other tabs
// do not share it. Where storage is forbidden it is in memory only. The service says when it has
// expired (401), because this computer's clock may be wrong.

const KEY = 'seckill.session';

let current = null; // { token, user: { id, phone, role } }
const listeners = new Set();

/** The session, or null. */
export function session() {
  return current;
}

/** Calls the listener with the session (or null) and a notice's key (or '') at each change. */
export function onChange(listener) {
  listeners.add(listener);
}

/** Begins a session from the answer of POST /api/login. */
export function begin({ token, user }) {
  current = { token, user };
  store();
  tell('');
}

/** Logs out; the notice is the key of a text that says why, empty if the user asked for it. */
export function end(notice = '') {
  if (!current) return;
  current = null;
  store();
  tell(notice);
}

/** Restores the session of this tab after a reload. */
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
    // The session stays in memory.
  }
}

function tell(notice) {
  for (const listener of listeners) listener(current, notice);
}
