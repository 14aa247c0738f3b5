// One lane of the page: counters, bars, buttons of faults, verdict, log.

/** What happens to the process of a replica. */
const PROCESS_FAULTS = ['freeze', 'thaw', 'kill', 'restart'];
/** The buttons of faults by what they happen to. Those of a link also name the link. */
const FAULTS = {
  replica: [
    ...PROCESS_FAULTS, 'freeze-holder', 'stand-still-past-lease', 'flush-redis-at-commit',
    'lose-commit',
  ],
  link: ['cut', 'delay', 'half-open', 'heal'],
  redis: [
    'flush-redis', 'freeze-redis', 'thaw-redis', 'fail-over-redis', 'jump-clock', 'restore-clock',
  ],
};
const MAX_LOG = 60;
/** Between two looks at the log while a race runs: no reader follows it faster. */
const LOG_INTERVAL_MS = 250;
/** Between two names of a picture that plays: no listener follows them faster. */
const LABEL_INTERVAL_MS = 2000;
/** Refused tokens that the fence names. */
const MAX_STALE = 5;

/** States of a lease that are no part of its usual course. */
const LEASE_NEWS = ['none', 'no_expiry', 'silent', 'not_recorded'];

function element(tag, text, name = '') {
  const made = document.createElement(tag);
  made.textContent = text;
  if (name) made.className = name;
  return made;
}

/** Sets a text only if it is another one: a screen reader need not hear it again. */
function setText(target, text) {
  if (target.textContent !== text) target.textContent = text;
}

/** Sets texts and nodes only if they say something else. */
function setNodes(target, nodes) {
  const text = nodes.map((it) => it.textContent ?? it).join('');
  if (target.textContent !== text) target.replaceChildren(...nodes);
}

/** The cell in the words of the reader's language. */
function cellText({ scope, guards, replicas, fenced, bug }) {
  const words = [t(`scope_${scope}`), t(`guards_${guards}`), t('count_replicas', { replicas })];
  const more = [...(fenced ? [t('fenced_true')] : []), ...(bug ? [t('bug', { bug })] : [])];
  return [...words, ...more].join(' · ');
}

/** Rows of a list, each of what the laboratory says. */
function saidRows(all) {
  return all.map((said) => {
    const row = element('li', '');
    row.append(saidNode(said));
    return row;
  });
}

/** A button of a fault, which can be pressed while a race runs. */
function faultButton(action, press) {
  const button = element('button', '');
  button.type = 'button';
  button.dataset.action = action;
  button.dataset.t = `fault_${action}`;
  button.disabled = true;
  button.addEventListener('click', () => press(button));
  return button;
}

class LaneView {
  constructor(name, { inject, jump, bet }) {
    const template = document.getElementById('lane-template');
    this.root = template.content.firstElementChild.cloneNode(true);
    this.name = name;
    this.answerNodes = () => [];
    this.jump = jump;
    this.inject = inject;
    this.root.id = `lane-${name}`;
    this.root.querySelector('h2').id = `title-${name}`;
    this.root.setAttribute('aria-labelledby', `title-${name}`);
    this.canvas = new LaneCanvas(this.root.querySelector('canvas'));
    this.faults = this.root.querySelector('.faults');
    const press = (action, replica) => this.press(action, replica);
    this.rowFaults = new RowFaults(this.root.querySelector('.rows'), name, press);
    this.bets = new BetPanel(this.root.querySelector('.bets'), (outcome) => bet(name, outcome));
    for (const [target, actions] of Object.entries(FAULTS)) this.addFaults(target, actions);
    this.links = this.faults.querySelector('.links');
    this.links.addEventListener('change', () => this.nameLinks());
    this.nameLinks();
    this.commands = new CommandPanel(this.root.querySelector('.commands'), name);
    this.locks = new LockPanel(this.root.querySelector('.locks'), name);
    document.getElementById('lanes').append(this.root);
  }

  addFaults(target, actions) {
    const replica = () => Number(this.faults.querySelector('.replicas').value);
    const press = (button) => this.press(this.actionOf(button), replica());
    const buttons = actions.map((action) => faultButton(action, press));
    this.faults.querySelector(`.of-${target}`).append(...buttons);
  }

  /** The action of a button: that of a link is one on the chosen link. */
  actionOf(button) {
    const { action } = button.dataset;
    return FAULTS.link.includes(action) ? `${action}-${this.links.value}` : action;
  }

  nameLinks() {
    this.faults.querySelectorAll('.of-link button').forEach((button) => {
      button.dataset.t = `fault_${this.actionOf(button)}`;
      button.textContent = t(button.dataset.t);
    });
  }

  async press(action, replica) {
    this.answer(() => [t('fault_asked', { fault: t(`fault_${action}`) })]);
    this.answer(await this.inject({ lane: this.name, action, replica }));
  }

  /** Shows what became of a button that was pressed: nodes in the language of the reader. */
  answer(nodes) {
    this.answerNodes = nodes;
    setNodes(this.root.querySelector('.answer'), nodes());
  }

  /** Shows another race. */
  reset(lane) {
    this.lane = lane;
    this.shown = {};
    const select = this.faults.querySelector('.replicas');
    const options = Array.from({ length: lane.cell.replicas }, (_, index) => {
      const option = element('option', `r${index + 1}`);
      option.value = index + 1;
      return option;
    });
    select.replaceChildren(...options);
    const hasZooKeeper = lane.cell.lock === 'zookeeper';
    this.links.querySelector('[value=zookeeper]').hidden = !hasZooKeeper;
    if (!hasZooKeeper && this.links.value === 'zookeeper') this.links.value = 'redis';
    this.nameLinks();
    this.rowFaults.reset(lane.cell);
    this.bets.offerBreaks(Boolean(lane.rung));
    this.answer(() => []);
    this.commands.restart();
    this.locks.restart();
    this.root.querySelector('.verdict').hidden = true;
    this.translate();
  }

  /** Shows everything again, as in another language. */
  translate() {
    applyWords(this.root);
    this.rowFaults.translate();
    this.commands.translate();
    this.locks.translate();
    setNodes(this.root.querySelector('.answer'), this.answerNodes());
    this.shown = {};
    if (!this.lane) return;
    this.root.querySelector('h2').textContent = `${t(this.name)}: ${this.lane.cell.lock}`;
    this.root.querySelector('.cell').textContent = cellText(this.lane.cell);
  }

  setFaults(enabled) {
    this.faults.querySelectorAll('button').forEach((button) => { button.disabled = !enabled; });
    this.rowFaults.setEnabled(enabled);
  }

  /** Says why the buttons of faults do nothing in a challenge or a rung. */
  explainFaults(hasOwnFault) {
    this.faults.querySelector('.of-challenge').hidden = !hasOwnFault;
  }

  update(head, span, isPlaying) {
    const { lane } = this;
    if (!lane) return;
    this.updateCounters(head, isPlaying);
    this.canvas.draw(lane, head, span);
    this.updateFence(head);
    this.updateLog(head);
    // The verdict is that of the end: it is hidden while an earlier moment is shown.
    this.updateVerdict(head);
    this.bets.update(lane, lane.isJudgedAt(head));
  }

  updateCounters(head, isPlaying) {
    const { lane } = this;
    const [sold, second] = [lane.soldUntil(head), lane.secondsUntil(head)];
    const violated = lane.violatedAt <= head;
    const counter = (name, text, bad) => {
      const box = this.root.querySelector(`.counters .${name}`);
      setText(box.querySelector('dd'), text);
      box.classList.toggle('bad', bad);
    };
    counter('sold', `${sold} / ${lane.stock}`, sold > lane.stock);
    counter('second', String(second), second > 0);
    counter('first', violated ? seconds(lane.violatedAt) : '–', violated);
    const { rate, latency } = recentCost(lane, head);
    counter('rate', rate, false);
    counter('latency', latency, false);
    this.root.classList.toggle('bad', violated);
    const lease = serverLeaseText(lane, head);
    const values = { lock: lane.cell.lock, sold, stock: lane.stock, second, lease };
    const { state } = lane.leaseAt(head);
    this.updateLabel(values, `${violated} ${LEASE_NEWS.includes(state) && state}`, isPlaying);
  }

  /** Names the picture of the moment: while it plays only now and then, but news at once. */
  updateLabel(values, news, isPlaying) {
    const { sold, second, lease } = values;
    const { label, labelAt = -Infinity } = this.shown;
    const now = performance.now();
    const isDue = !isPlaying || this.shown.news !== news || now - labelAt >= LABEL_INTERVAL_MS;
    const said = `${sold} ${second} ${lease}`;
    if (!isDue || said === label) return;
    Object.assign(this.shown, { label: said, labelAt: now, news });
    this.root.querySelector('canvas').setAttribute('aria-label', t('canvas', values));
  }

  /** The fence of a lane with fencing tokens: the last one accepted, and the newest refused. */
  updateFence(head) {
    const { lane } = this;
    const box = this.root.querySelector('.fence');
    box.hidden = !lane.cell.fenced;
    if (box.hidden) return;
    const { last, stale } = lane.fenceUntil(head);
    const key = `${last?.n} ${stale.length}`;
    if (this.shown.fence === key) return;
    this.shown.fence = key;
    const text = last ? t('fence_accepted', this.tokenValues(last)) : t('fence_none');
    setText(box.querySelector('.accepted'), text);
    box.querySelector('.stale').replaceChildren(...stale.slice(-MAX_STALE).reverse().map((it) => (
      element('li', t('fence_refused', this.tokenValues(it))))));
  }

  tokenValues({ token, highest, n, user, replica }) {
    const resource = this.lane.cell.scope === 'user' ? t('fence_user', { user }) : t('fence_all');
    return { token, highest, n, user, replica, resource };
  }

  updateLog(head) {
    const { lane } = this;
    const end = firstAbove(lane.notes, head, (it) => it.t);
    const now = performance.now();
    if (this.shown.log === end || now - (this.shown.logAt ?? -Infinity) < LOG_INTERVAL_MS) return;
    [this.shown.log, this.shown.logAt] = [end, now];
    const rows = lane.notes.slice(Math.max(0, end - MAX_LOG), end).reverse().map((note) => {
      const isFault = ['fault', 'replaced', 'stale'].includes(note.kind);
      const row = element('li', '', isFault ? 'fault' : 'violation');
      row.append(element('time', seconds(note.t)), element('span', this.noteText(note)));
      if (note.detail) row.append(saidNode(note.detail));
      return row;
    });
    if (!rows.length) rows.push(element('li', t('nothing_yet')));
    this.root.querySelector('.log').replaceChildren(...rows);
  }

  noteText(note) {
    if (note.kind === 'second') return t('note_second', note);
    if (note.kind === 'stale') return t('fence_refused', this.tokenValues(note.request));
    if (note.kind === 'overlap') {
      return t('note_overlap', { what: overlapText(this.lane, note.one) });
    }
    if (note.kind === 'replaced') {
      return t('note_replaced', { replica: note.replica, state: t(`replica_${note.state}`) });
    }
    const fault = [t(`fault_${note.action}`), note.replica].filter(Boolean).join(' ');
    return t(`phase_${note.phase}`, { fault, replica: note.replica });
  }

  updateVerdict(head) {
    const { verdict, known } = this.lane;
    const isDue = this.lane.isJudgedAt(head);
    const box = this.root.querySelector('.verdict');
    box.hidden = !isDue;
    if (!isDue || this.shown.verdict === known) return;
    this.shown.verdict = known;
    const { orders, stock, oversold, duplicates } = verdict;
    const isBad = oversold > 0 || duplicates > 0;
    const outcome = box.querySelector('.outcome');
    outcome.textContent = t('outcome', { orders, stock, oversold, duplicates });
    outcome.className = `outcome ${isBad ? 'bad' : 'good'}`;
    this.updateRung(box, verdict.rung);
    box.querySelector('.cost').textContent = costText(verdict);
    const broken = verdict.findings.filter((finding) => !finding.held);
    box.querySelector('.broken').replaceChildren(...broken.map((one) => this.brokenRow(one)));
    const held = verdict.findings.filter((finding) => finding.held);
    this.updateInvalid(box.querySelector('.invalid'), verdict.invalid_because);
    box.querySelector('.rules summary').textContent = t('held', { count: held.length });
    const words = held.map(({ rule }) => element('li', `✓ ${t(`rule_${rule}`)}`));
    box.querySelector('.held').replaceChildren(...words);
  }

  /** What the rung says of the lane, and what was seen. */
  updateRung(box, rung) {
    const outcome = box.querySelector('.rung-outcome');
    outcome.hidden = !rung;
    const isAsSaid = ['broke', 'withstood'].includes(rung?.outcome);
    outcome.className = `rung-outcome ${isAsSaid ? 'good' : 'bad'}`;
    setText(outcome, rung ? t(`rung_outcome_${rung.outcome}`) : '');
    box.querySelector('.evidence').replaceChildren(...saidRows(rung?.evidence ?? []));
  }

  /** Why the load was no real load, as the comparison counts it. */
  updateInvalid(box, reasons) {
    box.hidden = !reasons.length;
    box.querySelector('summary').textContent = t('invalid', { count: reasons.length });
    box.querySelector('ul').replaceChildren(...saidRows(reasons));
  }

  /** A broken rule, with buttons that lead to the requests that prove it. */
  brokenRow({ rule, detail, proofs }) {
    const row = element('li', '');
    row.append(element('b', `✗ ${t(`rule_${rule}`)}`), ' ', saidNode(detail), ' ');
    const { scope, guards } = this.lane.cell;
    const isUnprotected = rule === 'stock_adds_up' && scope === 'user' && guards === 'off';
    if (isUnprotected) row.append(element('span', t('why_stock'), 'detail'));
    for (const n of [...new Set(proofs.flat())].slice(0, 8)) {
      const request = this.lane.byNumber.get(n);
      const button = element('button', `#${n}`);
      button.type = 'button';
      button.setAttribute('aria-label', t('show_request', { n, user: request?.user ?? '?' }));
      button.addEventListener('click', () => this.jump(request?.end ?? 0));
      row.append(button, ' ');
    }
    return row;
  }
}
