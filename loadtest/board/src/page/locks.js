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
    const why = this.root.querySelector('.lock-reason');
    if (why.textContent !== saidText(reason ?? '')) {
      why.replaceChildren(...(reason ? [saidNode(reason)] : []));
    }
    const hasList = state === 'listed' || locks.length > 0;
    const values = { shown: locks.length, count, age: ((age ?? 0) / 1000).toFixed(1) };
    const isOld = age !== null && age !== undefined;
    const text = hasList && isOld ? t('locks_count', values) : '';
    setText(this.root.querySelector('.count'), text);
    const table = this.root.querySelector('.table');
    // An empty list stays, with the focus that it may have.
    table.hidden = !hasList;
    // Two regions of a page may not have the same name.
    table.setAttribute('aria-label', [t(this.lane), t('locks')].join(t('colon')));
    updateRows(this.body, locks.flatMap((lock) => this.rows(lock)));
  }

  /** A row for each holder, so that its lease and its token are beside it. */
  rows(lock) {
    const { state, reason, holders, holder_count: count } = lock;
    const lines = holders.map((one) => [[holderText(one)], [leaseText(one)], [tokenText(one)]]);
    if (!lines.length) lines.push([[], [], []]);
    const why = reason ? [saidText(reason)] : [];
    if (state !== 'held') lines[0][0].unshift(t(`lock_${state}`), ...why);
    const more = count - holders.length;
    if (more > 0) lines[lines.length - 1][0].push(t('lock_more', { count: more }));
    const columns = ['holder', 'lease', 'token'];
    const rows = lines.map((cells, at) => {
      const row = withRole(element('tr', ''), 'row');
      row.dataset.key = `${at} ${lock.name}`;
      row.append(...cells.map((texts, index) => lockCell(columns[index], texts)));
      return row;
    });
    const name = withRole(element('th', lock.name), 'rowheader');
    name.scope = 'row';
    const waiters = lockCell('waiters', this.waiters(lock));
    [name.rowSpan, waiters.rowSpan] = [rows.length, rows.length];
    rows[0].prepend(name);
    rows[0].append(waiters);
    return rows;
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
    if (more > 0) lines.push(t('lock_more', { count: `${more}${complete ? '' : '+'}` }));
    else if (!complete) lines.push(t('lock_more_unknown'));
    return lines;
  }
}

/** Makes these the rows of a table. Rows and texts that are the same stay: one may be selected. */
function updateRows(body, rows) {
  const old = new Map([...body.rows].map((row) => [row.dataset.key, row]));
  const keys = new Set(rows.map((row) => row.dataset.key));
  old.forEach((row, key) => { if (!keys.has(key)) row.remove(); });
  rows.forEach((row, at) => {
    const known = old.get(row.dataset.key);
    if (known) updateCells(known, row);
    const next = body.rows[at];
    if ((known ?? row) !== next) body.insertBefore(known ?? row, next ?? null);
  });
}

function updateCells(row, { cells }) {
  if (row.cells.length !== cells.length) {
    row.replaceChildren(...cells);
    return;
  }
  [...cells].forEach((cell, at) => {
    const known = row.cells[at];
    if (known.rowSpan !== cell.rowSpan) known.rowSpan = cell.rowSpan;
    if (cell.dataset.label) known.dataset.label = cell.dataset.label;
    const lines = [...known.childNodes];
    [...cell.childNodes].forEach((line, index) => {
      if (lines[index]) patchText(lines[index], line.textContent);
      else known.append(line);
    });
    lines.slice(cell.childNodes.length).forEach((line) => line.remove());
  });
}

/** Changes only what differs of a text, so that a selection beside it stays. */
function patchText(line, text) {
  const node = line.firstChild ?? line;
  const old = node.data ?? '';
  if (old === text) return;
  if (node.data === undefined) {
    line.textContent = text;
    return;
  }
  const most = Math.min(old.length, text.length);
  let [from, end] = [0, 0];
  while (from < most && old[from] === text[from]) from += 1;
  while (end < most - from && old.at(-1 - end) === text.at(-1 - end)) end += 1;
  node.replaceData(from, old.length - from - end, text.slice(from, text.length - end));
}

/** On a phone the style lays a table out as something else, which would hide what it is. */
function withRole(made, role) {
  made.setAttribute('role', role);
  return made;
}

/** A cell with a line for each text; where rows are narrow its column is named in it. */
function lockCell(column, texts) {
  const cell = withRole(element('td', '', column), 'cell');
  cell.dataset.label = t(`lock_${column}`);
  cell.append(...texts.map((text) => element('div', text)));
  return cell;
}

function holderText(holder) {
  const { tag, replica, place, holds, shares, servers, asked_ms_ago: ago } = holder;
  const parts = [];
  if (replica) parts.push(replica);
  if (tag) {
    parts.push(t('lock_process', { process: tag.process, host: tag.host }));
    parts.push(t('lock_since', { seconds: (ago / 1000).toFixed(1) }));
  } else {
    parts.push(holder.owner ?? holder.id);
    if (place) parts.push(place);
  }
  if (holds > 1) parts.push(t('lock_entered', { holds }));
  if (shares) parts.push(t('lock_reads'));
  if (servers > 1) parts.push(t('lock_servers', { servers }));
  return parts.join(' · ');
}

function leaseText({ lease }) {
  if (lease.kind !== 'ends') return t(`lease_${lease.kind}`);
  return `${(lease.left_ms / 1000).toFixed(1)} s`;
}

function tokenText({ token: number }) {
  return number ?? t('lock_no_token');
}
