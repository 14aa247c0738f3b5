// What orders cost: those of the last seconds before a moment, and those of a whole race.

/** The time before the moment shown whose orders and answers count. */
const COST_WINDOW = 2e6;

/**
 * The latencies of the answers in the window before a moment. To move it costs what enters it and
 * what leaves it, in either direction, and nothing of the rest of the race.
 */
class AnswerWindow {
  constructor() {
    /** Requests that a replica answered, by their ends. */
    this.answered = [];
    /** The latencies of those in the window, the shortest first. */
    this.latencies = [];
    this.head = -Infinity;
  }

  add(request) {
    insertSorted(this.answered, request, (it) => it.end);
    // An event may be older than the moment that is shown.
    const isInside = request.end > this.head - COST_WINDOW && request.end <= this.head;
    if (isInside) this.enter(request);
  }

  enter({ start, end }) {
    insertSorted(this.latencies, end - start);
  }

  leave({ start, end }) {
    this.latencies.splice(firstAbove(this.latencies, end - start) - 1, 1);
  }

  /** The answers after one time and until another. */
  between(from, until) {
    const [first, last] = [from, until].map((at) => firstAbove(this.answered, at, (it) => it.end));
    return this.answered.slice(first, last);
  }

  moveTo(head) {
    const [from, oldFrom] = [head - COST_WINDOW, this.head - COST_WINDOW];
    if (Math.abs(head - this.head) >= COST_WINDOW) {
      const latencies = this.between(from, head).map(({ start, end }) => end - start);
      this.latencies = latencies.sort((a, b) => a - b);
    } else if (head > this.head) {
      this.between(oldFrom, from).forEach((it) => this.leave(it));
      this.between(this.head, head).forEach((it) => this.enter(it));
    } else {
      this.between(head, this.head).forEach((it) => this.leave(it));
      this.between(from, oldFrom).forEach((it) => this.enter(it));
    }
    this.head = head;
  }

  /** Within how many microseconds 99 % of the answers came; nothing of none. */
  get p99() {
    return this.latencies[Math.ceil(this.latencies.length * 0.99) - 1];
  }
}

/** A number of two digits, or with one decimal. */
function shortNumber(value) {
  return value.toFixed(value < 10 ? 1 : 0);
}

/** Orders a second and the latency of answers, in the window before that time. */
function recentCost(lane, time) {
  const passed = Math.min(COST_WINDOW, time);
  const orders = lane.soldUntil(time) - lane.soldUntil(time - passed);
  lane.answers.moveTo(time);
  const { p99 } = lane.answers;
  return {
    rate: shortNumber(passed > 0 ? (orders * 1e6) / passed : 0),
    latency: p99 === undefined ? '–' : `${shortNumber(p99 / 1000)} ms`,
  };
}

/** What the orders of a race cost; the processor time is known if no replica was started anew. */
function costText({ orders_per_s: rate, p99_ms: p99, cpu_ms: cpu }) {
  const cost = t('cost', { rate: shortNumber(rate), p99: shortNumber(p99) });
  return cpu === null ? cost : `${cost} ${t('cost_processor', { cpu: shortNumber(cpu) })}`;
}
