// A purchase that waits in the queue: follows its ticket until that has ended. The service tells
// how it goes by a stream of events, which is read with `fetch`, so that the token stands in a
// header and in no address. Where no stream comes through, the ticket is asked for now and then
// instead. Knows nothing of the page.

import { request } from './http.js';

// For how long, in all. A ticket that is pending for longer waits for a server that is away; who
// buys again gets the same ticket.
const PATIENCE_MS = 10 * 60_000;
// Between two questions: at first, and at most. Each wait is varied by 15 % either way.
const ASK_AFTER_MS = 500;
const ASK_AT_LEAST_EVERY_MS = 5_000;
// However long the service asks for.
const WAIT_MAX_S = 30;

/**
 * Follows a ticket. Gives { ticket, answer }: how it ended, or null if that could not be learnt;
 * and the last answer. `onPending()` is called each time the service says that it is under way.
 */
export async function follow(ticketId, { onPending, signal }) {
  const path = `/api/tickets/${encodeURIComponent(ticketId)}`;
  const untilMs = performance.now() + PATIENCE_MS;
  let told = { ticket: null, answer: null, heard: true };
  let delayMs = ASK_AFTER_MS;
  while (performance.now() < untilMs) {
    // A stream that said something may be opened again: it lives for five minutes, and not longer
    // than its replica.
    if (told.heard) told = await listen(path, onPending, signal);
    if (isOver(told, signal)) break;
    const waitS = Math.min(told.answer.retryAfterS ?? 0, WAIT_MAX_S);
    await pause(Math.max(delayMs, waitS * 1000), signal);
    if (signal.aborted) break;
    told = { ...await ask(path, signal), heard: told.heard };
    if (isOver(told, signal)) break;
    if (told.ticket) onPending();
    delayMs = Math.min(delayMs * 1.5, ASK_AT_LEAST_EVERY_MS);
  }
  return { ticket: hasEnded(told.ticket) ? told.ticket : null, answer: told.answer };
}

function hasEnded(ticket) {
  return typeof ticket?.status === 'string' && ticket.status !== 'pending';
}

// Also if it is not known here, or whoever asks is not logged in any more.
function isOver({ ticket, answer }, signal) {
  return hasEnded(ticket) || [401, 404].includes(answer.status) || signal.aborted;
}

// The stream, until the ticket has ended or the stream has.
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
        if (!hasEnded(ticket)) onPending();
      }
      return hasEnded(ticket);
    },
  });
  return { ticket, answer, heard: ticket !== null };
}

// The ticket in an event; null for a sign of life, and for what is no ticket.
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

function pause(ms, signal) {
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
