// What the page asks the board for: races, faults, and the stream of events.

const token = new URLSearchParams(location.search).get('token') ?? '';
const RECONNECT_MS = 3000;
const ANSWER_MS = 30000;
/** A restart takes up to 20 s, and a fault waits for up to eight others of its lane. */
const FAULT_ANSWER_MS = 9 * 20000 + ANSWER_MS;

/** The name of a field of the form in the language of the reader. */
function fieldName(field) {
  const known = (name) => (hasText(name) ? t(name) : name);
  return field.split('.').map(known).join(t('colon'));
}

/** What an error of the board says: its code has a text. */
function problemText(answer) {
  const key = `error_${answer.code}`;
  if (!hasText(key)) return t('failed');
  const { field = '', action, state } = answer;
  const [fault, shown] = [t(`fault_${action}`), t(`replica_${state}`)];
  return t(key, { ...answer, field: fieldName(field), fault, state: shown });
}

/** What an error of the board says as nodes, with what the laboratory says in it. */
function problemNodes(answer) {
  const isOfLab = answer.code === 'fault_failed';
  return isOfLab ? textNodes('error_fault_failed', answer) : [problemText(answer)];
}

/** The answer of the board; without one, an answer with the code `no_answer`. */
async function post(path, body, answerMs = ANSWER_MS) {
  const headers = { 'content-type': 'application/json', 'x-board-token': token };
  const signal = AbortSignal.timeout(answerMs);
  try {
    const sent = { method: 'POST', headers, signal, body: JSON.stringify(body) };
    const response = await fetch(path, sent);
    return { ok: response.ok, answer: await response.json() };
  } catch {
    return { ok: false, answer: { code: 'no_answer' } };
  }
}

/** The stream of events. A hidden page reads none: a browser opens six connections to a board. */
class EventStream {
  constructor({ take, refresh }) {
    [this.take, this.refresh] = [take, refresh];
    this.source = null;
    this.last = '';
    /** Why nothing comes, in the language of the reader. */
    this.problem = null;
  }

  start() {
    document.addEventListener('visibilitychange', () => this.follow());
    this.follow();
  }

  get address() {
    const last = this.last ? { last: this.last } : {};
    return `events?${new URLSearchParams({ token, ...last })}`;
  }

  /** Reads while the page is visible. */
  follow() {
    if (document.hidden) {
      this.source?.close();
      this.source = null;
    } else if (!this.source) {
      this.connect();
    }
  }

  connect() {
    const source = new EventSource(this.address);
    this.source = source;
    source.addEventListener('message', (message) => {
      this.last = message.lastEventId;
      this.setProblem(null);
      this.take(JSON.parse(message.data));
    });
    source.addEventListener('open', () => this.setProblem(null));
    source.addEventListener('error', () => this.fail(source));
  }

  /** The browser connects again by itself, but not if the board has refused. */
  async fail(source) {
    if (source.readyState !== EventSource.CLOSED) {
      this.setProblem({ code: 'no_answer' });
      return;
    }
    const problem = await this.refusal();
    if (this.source !== source) return;
    if (problem) this.setProblem(problem);
    setTimeout(() => {
      if (this.source !== source) return;
      this.source = null;
      this.follow();
    }, RECONNECT_MS);
  }

  /** Why the stream was refused, which the error event does not say; null if it no longer is. */
  async refusal() {
    const stop = new AbortController();
    try {
      const response = await fetch(this.address, { signal: stop.signal });
      return response.ok ? null : await response.json();
    } catch {
      return { code: 'no_answer' };
    } finally {
      stop.abort();
    }
  }

  setProblem(problem) {
    if (problem === null && this.problem === null) return;
    this.problem = problem;
    this.refresh();
  }
}
