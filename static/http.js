// Every request of the page goes through `request`, which never throws and always times out.

import { sample } from './clock.js';
import { hasText, t } from './language.js';
import * as session from './session.js';

const READ_TIMEOUT_MS = 8_000;
// A purchase usually takes less than a second. After this time its order is looked up
// (purchase.js).
const WRITE_TIMEOUT_MS = 15_000;
// A stream sends a comment every 10 s; one that is silent for longer than this is dead.
const SILENCE_MS = 25_000;

const listeners = new Set();

/** Calls the listener with every answer or failure of any request. */
export function onAnswer(listener) {
  listeners.add(listener);
}

/**
 * Sends one request and describes what came back:
 * status (0: no answer), body (JSON or null), problem (body, if it is problem+json), replica,
 * requestId, ms, retryAfterS (or null), failure ('' | 'timeout' | 'network'), lab.
 *
 * With `onText` an answer of status 200 is a stream: its text is handed over piece by piece, until
 * it ends or `onText` returns true. `signal` aborts the request.
 */
export async function request(method, path, options = {}) {
  const sentWith = options.anonymous ? null : session.session();
  const answer = await send(method, path, { ...options, token: sentWith?.token });
  for (const listener of listeners) listener(answer);
  // A 401 for a token that was replaced meanwhile does not end the new session.
  if (answer.status === 401 && sentWith && session.session() === sentWith) {
    session.end('account.ended');
  }
  return answer;
}

async function send(method, path, { body, headers = {}, token, onText, signal }) {
  const abort = new AbortController();
  const giveUp = () => abort.abort();
  let timer = setTimeout(giveUp, method === 'GET' ? READ_TIMEOUT_MS : WRITE_TIMEOUT_MS);
  const sentMs = performance.now();
  const answer = {
    method, path, status: 0, body: null, problem: null, replica: '', requestId: '',
    ms: 0, retryAfterS: null, failure: '', lab: '',
  };
  signal?.addEventListener('abort', giveUp);
  try {
    const response = await fetch(path, {
      method,
      headers: {
        Accept: onText ? 'text/event-stream' : 'application/json',
        ...(body === undefined ? {} : { 'Content-Type': 'application/json' }),
        ...(token ? { Authorization: `Bearer ${token}` } : {}),
        ...headers,
      },
      body: body === undefined ? undefined : JSON.stringify(body),
      cache: 'no-store',
      credentials: 'omit',
      redirect: 'error',
      signal: abort.signal,
    });
    const receivedMs = performance.now();
    answer.status = response.status;
    readHeaders(response.headers, answer);
    if (onText && response.status === 200) {
      await readStream(response, onText, () => {
        clearTimeout(timer);
        timer = setTimeout(giveUp, SILENCE_MS);
      });
    } else {
      await readBody(response, answer);
    }
    if (answer.body?.server_time) sample(answer.body.server_time, sentMs, receivedMs);
  } catch {
    // Status 0 even if headers had arrived: a partial answer counts as none.
    answer.status = 0;
    answer.failure = abort.signal.aborted ? 'timeout' : 'network';
  } finally {
    clearTimeout(timer);
    signal?.removeEventListener('abort', giveUp);
  }
  answer.ms = Math.round(performance.now() - sentMs);
  return answer;
}

// Decodes a stream; a chunk may end inside a character. Events are put together by the caller.
async function readStream(response, onText, onSign) {
  const reader = response.body.getReader();
  const decoder = new TextDecoder();
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    onSign();
    if (onText(decoder.decode(value, { stream: true }))) {
      await reader.cancel();
      return;
    }
  }
}

function readHeaders(headers, answer) {
  answer.replica = headers.get('X-Replica') ?? '';
  answer.requestId = headers.get('X-Request-Id') ?? '';
  answer.lab = headers.get('X-Lab') ?? '';
  const waitS = Number.parseInt(headers.get('Retry-After') ?? '', 10);
  if (waitS >= 0) answer.retryAfterS = waitS;
}

async function readBody(response, answer) {
  const type = response.headers.get('Content-Type') ?? '';
  const text = await response.text();
  if (!/^application\/(problem\+)?json\b/i.test(type)) return;
  try {
    answer.body = JSON.parse(text);
  } catch {
    return;
  }
  if (/^application\/problem\+json\b/i.test(type) && answer.body) answer.problem = answer.body;
}

/** One sentence for an answer that the caller has no words for. */
export function explain(answer) {
  if (answer.failure === 'timeout') return t('fail.timeout');
  if (answer.failure === 'network') {
    return t(navigator.onLine ? 'fail.network' : 'fail.offline');
  }
  const wait = answer.retryAfterS === null ? ''
    : ` ${t('again.in', { wait: duration(answer.retryAfterS) })}`;
  const said = problemText(answer.problem);
  if (said) return said + wait;
  const { status } = answer;
  return t(status >= 500 ? 'fail.status_5xx' : 'fail.status', { status }) + wait;
}

// The service's own words are English; other languages have a text for each code.
function problemText(problem) {
  const detail = withStop(problem?.detail || problem?.title || '');
  const key = `problem.${problem?.code}`;
  return hasText(key) ? t(key, { detail }) : detail;
}

/** 1 -> "1 second", 90 -> "90 seconds", 600 -> "10 minutes", 40_000 -> "12 hours"; rounded up. */
export function duration(seconds) {
  if (seconds === 1) return t('wait.second');
  if (seconds <= 120) return t('wait.seconds', { count: seconds });
  const minutes = Math.ceil(seconds / 60);
  if (minutes <= 120) return t('wait.minutes', { count: minutes });
  return t('wait.hours', { count: Math.ceil(minutes / 60) });
}

function withStop(text) {
  return text === '' || /[.!?]$/.test(text) ? text : `${text}.`;
}

// A key for a request. crypto.randomUUID exists only in secure contexts; the page also runs over
// plain HTTP in a LAN.
export function uuid() {
  if (crypto.randomUUID) return crypto.randomUUID();
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  bytes[6] = (bytes[6] & 0x0f) | 0x40;
  bytes[8] = (bytes[8] & 0x3f) | 0x80;
  const hex = Array.from(bytes, (byte) => byte.toString(16).padStart(2, '0')).join('');
  return hex.replace(/^(.{8})(.{4})(.{4})(.{4})(.{12})$/, '$1-$2-$3-$4-$5');
}
