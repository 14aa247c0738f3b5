// Follows the ticket of a purchase in the queue until it has ended. This module does not touch the
// page.
//
// The service sends a stream of events, which is read with `fetch`, so that the token is in a
// header and not in an address. Where no stream comes through, the ticket is polled.

import { request } from './http.js';

// How long to follow a ticket. One that is pending for longer waits for a server that does not
// answer; buying again gives the same ticket.
const FOLLOW_TIMEOUT_MS = 10 * 60_000;
// Between two polls: at first, and at most. Each wait is varied by 15 % either way.
const ASK_AFTER_MS = 500;
const ASK_AT_LEAST_EVERY_MS = 5_000;
// The longest `Retry-After` that is followed.
const WAIT_MAX_S = 30;

/**
 * Follows a ticket. Resolves to { ticket, answer }: the ended ticket, or null if its end is
 * not known; and the last answer. `onPending(ticket)` is called at each answer that it is pending.
 */
export async function follow(ticketId, { onPending, signal }) {
  const path = `/api/tickets/${encodeURIComponent(ticketId)}`;
  const untilMs = performance.now() + FOLLOW_TIMEOUT_MS;
  let told = { ticket: null, answer: null, heard: true };
  let delayMs = ASK_AFTER_MS;
  while (performance.now() < untilMs) {
    // A stream that sent an event is opened again: it ends after five minutes, or with its replica.
    if (told.heard) told = await listen(path, onPending, signal);
    if (isOver(told, signal)) break;
    const waitS = Math.min(told.answer.retryAfterS ?? 0, WAIT_MAX_S);
    await pause(Math.max(delayMs, waitS * 1000), signal);
    if (signal.aborted) break;
    told = { ...await ask(path, signal), heard: told.heard };
    if (isOver(told, signal)) break;
    if (told.ticket) onPending(told.ticket);
    delayMs = Math.min(delayMs * 1.5, ASK_AT_LEAST_EVERY_MS);
  }
  return { ticket: hasEnded(told.ticket) ? told.ticket : null, answer: told.answer };
}

function hasEnded(ticket) {
  return typeof ticket?.status === 'string' && ticket.status !== 'pending';
}

// Over: the ticket has ended or is not found, or the user is logged out.
function isOver({ ticket, answer }, signal) {
  return hasEnded(ticket) || [401, 404].includes(answer.status) || signal.aborted;
}

// Reads the stream until the ticket or the stream ends.
async function listen(path, onPending, signal) {
  let ticket = null;
  let rest = '';
  const answer = await request('GET', `${path}/events`, {
    signal,
    onText(text) {
      const events = (rest + text).split('\n\n');
      rest = events.pop();
      for (const event of events) {
        const said = ticketOf(event);
        if (!said) continue;
        ticket = said;
        if (!hasEnded(ticket)) onPending(ticket);
      }
      return hasEnded(ticket);
    },
  });
  return { ticket, answer, heard: ticket !== null };
}

// The ticket in an event; null for a comment, and for anything else.
function ticketOf(event) {
  const data = event.split('\n').filter((line) => line.startsWith('data:'));
  try {
    return JSON.parse(data.map((line) => line.slice(5)).join('\n'))?.ticket ?? null;
  } catch {
    return null;
  }
}

async function ask(path, signal) {
  const answer = await request('GET', path, { signal });
  return { ticket: answer.status === 200 ? answer.body?.ticket ?? null : null, answer };
}

/** Waits about that long: 15 % more or less; not after `signal` aborts. */
export function pause(ms, signal) {
  return new Promise((wake) => {
    const end = () => {
      clearTimeout(timer);
      signal.removeEventListener('abort', end);
      wake();
    };
    const timer = setTimeout(end, ms * (0.85 + Math.random() * 0.3));
    signal.addEventListener('abort', end);
  });
}
