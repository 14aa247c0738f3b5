// What is known of a race: requests, holds, faults, and what follows from them. Times are
// microseconds since the race began.

/** The index of the first element of a sorted list whose key is above that value. */
function firstAbove(list, value, key = (it) => it) {
  let [low, high] = [0, list.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (key(list[middle]) > value) high = middle;
    else low = middle + 1;
  }
  return low;
}

/** Puts an element into a sorted list. Most come last. */
function insertSorted(list, element, key = (it) => it) {
  const last = list.length && key(list[list.length - 1]);
  if (!list.length || last <= key(element)) list.push(element);
  else list.splice(firstAbove(list, key(element), key), 0, element);
}

const MAX_SLOTS = 16;
/** Holds of one lock that a new one is compared with. */
const COMPARED = 64;
const MAX_OVERLAPS = 4000;
/** What begins with an action and lasts until another one: a link fails as its action says. */
const OPENS = {
  freeze: 'frozen',
  kill: 'down',
  restart: 'down',
  'freeze-redis': 'freeze-redis',
  'jump-clock': 'jump-clock',
};
const CLOSES = {
  thaw: ['frozen'],
  restart: ['down'],
  'thaw-redis': ['freeze-redis'],
  'restore-clock': ['jump-clock'],
};
/** Actions that are over when their witness is told. */
const ENDS_ITSELF = ['freeze-holder', 'stand-still-past-lease'];
/** Actions that have changed nothing if they failed. */
const ALL_OR_NOTHING = ['jump-clock'];
ENDS_ITSELF.forEach((action) => { OPENS[action] = action; });
/** Faults of rungs. */
const RUNG_FAULTS = [
  'kill-at-work', 'kill-after-set', 'release-past-lease', 'drop-messages', 'redis-flush-at-commit',
  'redis-freeze', 'cut-at-commit', 'lose-renewals-at-commit', 'expire-session-at-commit',
];
RUNG_FAULTS.forEach((fault) => { OPENS[fault] = fault; });
const LINK_FAULTS = ['cut', 'delay', 'half-open'];
for (const link of ['redis', 'database', 'zookeeper']) {
  const faults = LINK_FAULTS.map((fault) => `${fault}-${link}`);
  faults.forEach((fault) => { OPENS[fault] = fault; });
  CLOSES[`heal-${link}`] = faults;
}

class LaneModel {
  constructor(cell, { stock, rung = null }) {
    this.cell = cell;
    this.stock = stock;
    this.rung = rung;
    this.byNumber = new Map();
    this.requests = [];
    /** Requests that have not ended. */
    this.open = new Set();
    this.longest = 0;
    /** Times of acknowledged orders, and of those that were not their user's first. */
    this.orders = [];
    this.seconds = [];
    this.firstOrders = new Map();
    /** Pairs of a user's first order and another one, by the time of the other. */
    this.secondOrders = [];
    this.holds = new Map();
    this.overlaps = [];
    this.noted = new Set();
    this.marks = [];
    this.spans = [];
    this.notes = [];
    this.slots = new Map();
    /** Requests that ended, second orders and overlaps, in the order in which they became known. */
    this.arrived = { requests: [], seconds: [], overlaps: [] };
    /** When each code refused a request for the first time. */
    this.refusals = new Map();
    /** Requests whose holders showed a fencing token, by their ends. */
    this.shownTokens = [];
    /** What the server of the lock said of its lease: milliseconds, or the word for a state. */
    this.leases = [];
    this.longestLease = 1;
    this.answers = new AnswerWindow();
    this.serverHolds = new ServerHolds();
    this.verdict = null;
    /** What the reader has bet on. */
    this.bets = [];
    this.known = 0;
  }

  add([sort, , t, ...rest]) {
    this.known = Math.max(this.known, t);
    if (sort === 'i') this.invoke(t, ...rest);
    else if (sort === 'm') this.mark(t, ...rest);
    else if (sort === 'l') this.lease(t, ...rest);
    else if (sort === 'v') [this.verdict] = rest;
    else if (sort === 'r') this.note(0, 'replaced', { replica: rest[0], state: rest[1] });
    else if (sort !== 's') this.end(sort, t, ...rest);
  }

  invoke(start, n, user) {
    const request = { n, user, start, end: null, sort: '', replica: null, slot: 0 };
    this.byNumber.set(n, request);
    this.open.add(request);
    this.serverHolds.begin(request);
    insertSorted(this.requests, request, (it) => it.start);
  }

  end(sort, end, n, replica, text, ...hold) {
    const [from, until, lost, wait, token, highest] = hold;
    const request = this.byNumber.get(n);
    if (!request) return;
    this.open.delete(request);
    Object.assign(request, { sort, end, replica, text, token, highest });
    this.longest = Math.max(this.longest, end - request.start);
    request.slot = this.freeSlot(request);
    this.arrived.requests.push(request);
    if (from !== undefined) {
      const earliest = Math.min(from, request.start + wait);
      // 1 says that the moment is not known: it is drawn at the release.
      const lostAt = lost > 1 ? lost : until;
      Object.assign(request, { from, until, earliest, lost: Boolean(lost), lostAt });
      this.hold(request);
    }
    this.serverHolds.derive(request.user);
    // A replica names itself in its answer.
    if (replica !== null) this.answers.add(request);
    if (token !== undefined) this.showToken(request);
    if (sort === 'o') this.order(request);
    if (sort === 'f') {
      this.refusals.set(text, Math.min(end, this.refusals.get(text) ?? Infinity));
    }
  }

  lease(from, left, user) {
    insertSorted(this.leases, { from, left, user }, (it) => it.from);
    if (typeof left !== 'number') return;
    this.longestLease = Math.max(this.longestLease, left);
    if (user !== undefined) this.serverHolds.read(from, user);
  }

  /** The lease between these times. Each answer counts until the next one, and runs down. */
  leasesIn(start, end) {
    const above = (time) => firstAbove(this.leases, time, (it) => it.from);
    const first = Math.max(0, above(start) - 1);
    return this.leases.slice(first, above(end)).map(({ from, left, user }, index) => {
      const until = Math.min(this.leases[first + index + 1]?.from ?? Infinity, end);
      return typeof left === 'number'
        ? { state: 'left', from, left, user, until: Math.min(until, from + left * 1000) }
        : { state: left, from, until };
    });
  }

  /** What the lease is at that time. */
  leaseAt(time) {
    const [last] = this.leasesIn(time, time);
    if (last?.state !== 'left') return { state: last?.state ?? 'opening' };
    const left = last.left - (time - last.from) / 1000;
    return left > 0 ? { state: 'left', left, user: last.user } : { state: 'free' };
  }

  /** A holder showed its token to the fence, which refuses it after a higher one. */
  showToken(request) {
    insertSorted(this.shownTokens, request, (it) => it.end);
    if (isStale(request)) this.note(request.end, 'stale', { request });
  }

  /** What the fence has accepted and refused until that time. */
  fenceUntil(t) {
    const shown = this.shownTokens.slice(0, firstAbove(this.shownTokens, t, (it) => it.end));
    const accepted = shown.filter((it) => !isStale(it));
    const byToken = (a, b) => (a.token > b.token ? a : b);
    // Each user is a resource with tokens of its own.
    const last = this.cell.scope === 'user'
      ? accepted[accepted.length - 1] : accepted.reduce(byToken, accepted[0]);
    return { last, stale: shown.filter(isStale) };
  }

  /** The lowest place in its replica's row at which it covers no other request. */
  freeSlot(request) {
    const row = this.slots.get(request.replica) ?? [];
    this.slots.set(request.replica, row);
    for (let slot = 0; slot < MAX_SLOTS; slot += 1) {
      row[slot] ??= [];
      const others = row[slot];
      let covers = false;
      for (let at = others.length - 1; at >= 0 && !covers; at -= 1) {
        if (others[at].end <= request.start) break;
        covers = others[at].start < request.end;
      }
      if (!covers) {
        insertSorted(others, request, (it) => it.end);
        return slot;
      }
    }
    return MAX_SLOTS - 1;
  }

  hold(request) {
    const key = this.cell.scope === 'user' ? request.user : 0;
    const others = this.holds.get(key) ?? [];
    this.holds.set(key, others);
    for (const other of others.slice(-COMPARED)) {
      if (surelyOverlap(request, other)) this.overlap(other, request);
    }
    others.push(request);
  }

  overlap(a, b) {
    if (this.overlaps.length >= MAX_OVERLAPS) return;
    // What is certain of a hold ends as long after its earliest begin as it lasted.
    const sureEnd = (it) => it.earliest + it.until - it.from;
    const [from, until] = [Math.max(a.from, b.from), Math.min(sureEnd(a), sureEnd(b))];
    const one = { from, until: Math.max(until, from), a, b };
    insertSorted(this.overlaps, one, (it) => it.from);
    this.arrived.overlaps.push(one);
    // One line of the log for each lock; the bars show the others.
    const key = this.cell.scope === 'user' ? b.user : 0;
    if (!this.noted.has(key)) this.note(one.from, 'overlap', { one });
    this.noted.add(key);
  }

  order(request) {
    insertSorted(this.orders, request.end);
    const first = this.firstOrders.get(request.user);
    if (first === undefined || request.end < first.end) {
      this.firstOrders.set(request.user, request);
    }
    if (first !== undefined) {
      const second = request.end < first.end ? first : request;
      this.arrived.seconds.push(second);
      insertSorted(this.seconds, second.end);
      const earlier = second === request ? first : request;
      insertSorted(this.secondOrders, { earlier, second }, (it) => it.second.end);
      this.note(second.end, 'second', { user: request.user, n: second.n, other: earlier.n });
    }
  }

  mark(t, name, phase, detail) {
    const [action, replica] = name.split(' ');
    this.marks.push({ t, action, replica, phase });
    this.note(t, 'fault', { action, replica, phase, detail });
    // What is killed is no longer frozen.
    if (phase === 'begin' && OPENS[action] === 'down') this.close(['frozen'], replica, t);
    if (phase === 'begin' && OPENS[action]) {
      this.spans.push({ kind: OPENS[action], replica, from: t, to: Infinity });
    }
    if (ENDS_ITSELF.includes(action) && phase !== 'begin') this.close([action], replica, t);
    if (ALL_OR_NOTHING.includes(action) && phase === 'failed') this.close([action], replica, t);
    // A fault of a rung heals itself.
    if (phase === 'healed') this.close(CLOSES[action] ?? [OPENS[action]], replica, t);
  }

  /** Ends the spans of these kinds. */
  close(kinds, replica, t) {
    this.spans.filter((it) => kinds.includes(it.kind) && it.replica === replica && it.to > t)
      .forEach((it) => { it.to = t; });
  }

  note(t, kind, values) {
    insertSorted(this.notes, { t, kind, ...values }, (it) => it.t);
  }

  /** When the first unit beyond the stock was sold. */
  get oversoldAt() {
    return this.orders[this.stock] ?? Infinity;
  }

  get secondAt() {
    return this.seconds[0] ?? Infinity;
  }

  get violatedAt() {
    return Math.min(this.oversoldAt, this.secondAt);
  }

  /** When the first fault began. */
  get faultAt() {
    return this.marks.find(({ phase }) => phase === 'begin')?.t ?? Infinity;
  }

  /** When the first request was refused with that code, or with any. */
  refusedAt(code) {
    return code ? this.refusals.get(code) ?? Infinity : Math.min(...this.refusals.values());
  }

  /** Whether all that the verdict is about is shown at that time. */
  isJudgedAt(t) {
    return Boolean(this.verdict) && t >= Math.max(...this.orders.slice(-1), 0);
  }

  soldUntil(t) {
    return firstAbove(this.orders, t);
  }

  secondsUntil(t) {
    return firstAbove(this.seconds, t);
  }

  /** Requests that had begun at that time and had not ended. */
  underWayAt(t) {
    const start = firstAbove(this.requests, t - this.longest - 1, (it) => it.start);
    const end = firstAbove(this.requests, t, (it) => it.start);
    const known = this.requests.slice(start, end).filter((it) => it.end !== null && it.end > t);
    return [...known, ...[...this.open].filter((it) => it.start <= t)];
  }
}

/** Whether the fence refused the token of that request. */
function isStale({ token, highest }) {
  return token < highest;
}

/** Times are cut off to microseconds, three of which tell of one hold. */
const CUT_OFF = 3;

/** Whether two held one lock at once, wherever within their bounds the holds began. */
function surelyOverlap(a, b) {
  const before = (one, other) => one.from + CUT_OFF < other.earliest + other.until - other.from;
  return !a.lost && !b.lost && before(a, b) && before(b, a);
}

class RaceModel {
  constructor(race, setup) {
    this.race = race;
    this.setup = setup;
    this.lanes = setup.lanes.map((cell) => new LaneModel(cell, setup));
    this.times = [];
    this.challengeResult = null;
    this.state = 'preparing';
    this.detail = '';
  }

  add(event) {
    const [sort, lane, t, state, detail] = event;
    if (sort === 'c') {
      this.challengeResult = event[4];
    } else if (lane < this.lanes.length) {
      this.lanes[lane].add(event);
      if ('iofum'.includes(sort)) insertSorted(this.times, t);
    } else {
      [this.state, this.detail] = [state, detail];
    }
  }

  get isOver() {
    return this.state === 'done' || this.state === 'failed';
  }

  /** The last moment of which something is known. */
  get known() {
    return this.times.length ? this.times[this.times.length - 1] : 0;
  }

  get violatedAt() {
    return Math.min(...this.lanes.map((lane) => lane.violatedAt));
  }

  /**
   * The moment that a reader looks for first, and the key of its name: the first violation. The
   * lock of a rung may break without one: then it is the rung's fault, or the first refusal.
   */
  get landmark() {
    const [breaking] = this.lanes;
    const rung = RUNGS.find(({ slug }) => slug === breaking.rung);
    if (this.violatedAt < Infinity || !rung) return { at: this.violatedAt, name: 'jump' };
    if (rung.fault) return { at: breaking.faultAt, name: 'jump_fault' };
    return { at: breaking.refusedAt(rung.refusal), name: 'jump_refusal' };
  }

  after(t) {
    return this.times[firstAbove(this.times, t)] ?? this.known;
  }

  before(t) {
    return this.times[firstAbove(this.times, t - 1) - 1] ?? 0;
  }
}
