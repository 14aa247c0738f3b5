// The locks of a lane that are held, as the inspector reads them while this panel asks for them.

const LOCKS_INTERVAL_MS = 1000;
const MAX_WAITER_ID = 12;

class LockPanel {
  constructor(root, lane) {
    [this.root, this.lane] = [root, lane];
    this.body = root.querySelector('tbody');
    this.restart();
    root.addEventListener('toggle', () => this.follow());
  }

  restart() {
    this.held = { state: 'opening', locks: [], count: 0 };
    this.races = (this.races ?? 0) + 1;
    this.translate();
  }

  /** Asks for the locks while the panel is open and the page is visible. */
  async follow() {
    if (this.isAsking) return;
    this.isAsking = true;
    try {
      while (this.root.open) {
        if (!document.hidden) await this.ask();
        await new Promise((done) => { setTimeout(done, LOCKS_INTERVAL_MS); });
      }
    } finally {
      this.isAsking = false;
    }
  }

  async ask() {
    const { races } = this;
    let held = { state: 'no_answer', locks: [], count: 0 };
    try {
      const query = new URLSearchParams({ token, lane: this.lane });
      const response = await fetch(`locks?${query}`, { signal: AbortSignal.timeout(ANSWER_MS) });
      if (response.ok) held = await response.json();
    } catch {
      // That is the state.
    }
    // A question of the last race may be answered late.
    if (races !== this.races) return;
    this.held = held;
    this.translate();
  }

  translate() {
    const { state, reason, age_ms: age, locks, count } = this.held;
    // A screen reader hears a state once: what changes with each list is not in this text.
    setText(this.root.querySelector('.lock-state'), t(`locks_${state}`));
    setText(this.root.querySelector('.lock-reason'), reason ?? '');
    const hasList = state === 'listed' || locks.length > 0;
    const values = { shown: locks.length, count, age: ((age ?? 0) / 1000).toFixed(1) };
    const isOld = age !== null && age !== undefined;
    const text = hasList && isOld ? t('locks_count', values) : '';
    setText(this.root.querySelector('.count'), text);
    this.root.querySelector('.table').hidden = !locks.length;
    this.body.replaceChildren(...locks.map((lock) => this.row(lock)));
  }

  row(lock) {
    const row = element('tr', '');
    const name = element('th', lock.name);
    name.scope = 'row';
    const cells = [this.holders(lock), this.leases(lock), this.tokens(lock), this.waiters(lock)];
    row.append(name, ...cells.map((lines) => {
      const cell = element('td', '');
      cell.append(...lines.map((line) => element('div', line)));
      return cell;
    }));
    return row;
  }

  holders({ state, reason, holders, holder_count: count }) {
    const lines = holders.map((one) => {
      const { tag, replica, place, holds, shares, servers, asked_ms_ago: ago } = one;
      const parts = [];
      if (replica) parts.push(replica);
      if (tag) {
        parts.push(t('lock_process', { process: tag.process, host: tag.host }));
        parts.push(t('lock_since', { seconds: (ago / 1000).toFixed(1) }));
      } else {
        parts.push(one.owner ?? one.id);
        if (place) parts.push(place);
      }
      if (holds > 1) parts.push(t('lock_entered', { holds }));
      if (shares) parts.push(t('lock_reads'));
      if (servers > 1) parts.push(t('lock_servers', { servers }));
      return parts.join(' · ');
    });
    if (count > holders.length) lines.push(t('lock_more', { count: count - holders.length }));
    const isPlain = state === 'held';
    return isPlain ? lines : [t(`lock_${state}`), ...(reason ? [reason] : []), ...lines];
  }

  leases({ holders }) {
    return holders.map(({ lease }) => {
      if (lease.kind !== 'ends') return t(`lease_${lease.kind}`);
      return `${(lease.left_ms / 1000).toFixed(1)} s`;
    });
  }

  tokens({ holders }) {
    return holders.map(({ token: number }) => number ?? t('lock_no_token'));
  }

  /** The waiters of a queue are numbered; others wait in no order that the server knows. */
  waiters({ waiters: { known, ordered, complete, ids, replicas, count } }) {
    if (!known) return [t('waiters_unknown')];
    if (!count) return [t('waiters_none')];
    const lines = ids.map((id, index) => {
      const short = id.length > MAX_WAITER_ID ? `${id.slice(0, MAX_WAITER_ID)}…` : id;
      const waiter = [replicas[index], short].filter(Boolean).join(' · ');
      return ordered ? `${index + 1}. ${waiter}` : waiter;
    });
    const more = count - ids.length;
    const rest = `${more}${complete ? '' : '+'}`;
    if (more > 0 || !complete) lines.push(t('lock_more', { count: rest }));
    return lines;
  }
}
