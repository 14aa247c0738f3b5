// Holds that no answer reports, because the replica is frozen or was killed. The lease on the
// server names the user whose lock is held. One request of that user may be the only one that can
// hold it.

/** How long after the end of a hold a reading of its lease may arrive: the interval of readings. */
const LATE_READING = 50000;

class ServerHolds {
  constructor() {
    /** Requests, and times at which the lock was held, by user. */
    [this.requests, this.readings] = [new Map(), new Map()];
    /** From which reading until which one a request without an answer held the lock. */
    this.holds = new Map();
  }

  begin(request) {
    const requests = this.requests.get(request.user) ?? [];
    requests.push(request);
    this.requests.set(request.user, requests);
  }

  /** At that time the server said that the user's lock is held. */
  read(time, user) {
    const readings = this.readings.get(user) ?? [];
    insertSorted(readings, time);
    this.readings.set(user, readings);
    this.derive(user);
  }

  /**
   * Gives each reading that no report explains to the request that holds the lock, if only one can.
   * An answer, and the report in it, may change what was derived before.
   */
  derive(user) {
    const requests = this.requests.get(user) ?? [];
    requests.forEach((it) => this.holds.delete(it));
    let last = null;
    for (const time of this.readings.get(user) ?? []) {
      const isReported = requests.some((it) => (
        it.earliest <= time && time <= it.until + LATE_READING));
      const mayHold = requests.filter((it) => it.replica === null && it.start <= time);
      const holder = !isReported && mayHold.length === 1 ? mayHold[0] : null;
      const hold = this.holds.get(holder);
      if (hold && holder === last) hold.until = time;
      else if (holder && !hold) this.holds.set(holder, { from: time, until: time });
      last = holder;
    }
  }

  /** The holds that have begun at that time, each with its request. */
  begunAt(time) {
    return [...this.holds].filter(([, { from, until }]) => from < until && from <= time);
  }
}
