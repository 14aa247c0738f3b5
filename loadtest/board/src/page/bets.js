// Bets of the reader on a lane: what happens after the bet, until the race is over. A bet that is
// placed before the race is about all of it.

const OUTCOMES = ['holds', 'oversells', 'duplicates'];
const MAX_BETS = 5;

/** Places a bet, which replaces the last one unless a fault came in between; whether it counts. */
function placeBet(lane, outcome, at) {
  const last = lane.bets[lane.bets.length - 1];
  const isOpen = last && !lane.marks.some((it) => it.phase === 'begin' && it.t >= last.at);
  if (isOpen) lane.bets.pop();
  if (lane.bets.length === MAX_BETS) return false;
  lane.bets.push({ outcome, at });
  return true;
}

/** What happened after a bet. Of a whole race the judge says it. */
function afterBet(lane, at) {
  if (at === 0) return { oversold: lane.verdict.oversold, second: lane.verdict.duplicates };
  const [orders, second] = [lane.orders.slice(lane.stock), lane.seconds]
    .map((times) => times.filter((time) => time > at).length);
  return { oversold: orders, second };
}

/** Whether that is what was bet on. */
function isRight(outcome, { oversold, second }) {
  if (outcome === 'oversells') return oversold > 0;
  if (outcome === 'duplicates') return second > 0;
  return oversold === 0 && second === 0;
}

/** How two purchases of one user both came through, as far as replicas told. */
function secondOrderText(lane, { earlier, second }) {
  const values = {
    user: second.user, n: second.n, other: earlier.n, r: second.replica, r2: earlier.replica,
  };
  if (lane.overlaps.some(({ a, b }) => [a, b].every((it) => it === earlier || it === second))) {
    return t('why_overlap', values);
  }
  const lost = [earlier, second].find((it) => it.lost);
  if (lost) return t('why_lost', { ...values, n: lost.n, r: lost.replica });
  return t(earlier.from === undefined ? 'why_nothing_told' : 'why_no_overlap', values);
}

/** Why it came so: the first violation that was seen, and what the lock can do. */
function whyText(lane, at, { oversold, second }) {
  const texts = [];
  const pair = lane.secondOrders.find((it) => it.second.end > at);
  if (second && pair) texts.push(secondOrderText(lane, pair));
  const units = lane.cell.scope === 'voucher' && lane.overlaps.find((it) => it.from > at);
  if (oversold && !second && units) {
    texts.push(t('why_units', { n: units.a.n, other: units.b.n }));
  }
  const faults = lane.marks.filter((it) => it.phase === 'begin' && it.t >= at);
  if (!oversold && !second && faults.length) {
    texts.push(t('why_faults', { count: faults.length }));
  }
  return [...texts, t(`why_${lane.verdict.why}`)].join(' ');
}

/** A bet that is decided, in the language of the reader. */
function betResult(lane, { outcome, at }) {
  const after = afterBet(lane, at);
  const right = isRight(outcome, after);
  const when = at === 0 ? t('bet_race') : t('bet_after', { at: seconds(at) });
  const bet = t(`bet_${outcome}`);
  const text = t(right ? 'bet_right' : 'bet_wrong', { bet, when, ...after });
  return { right, text, why: whyText(lane, at, after) };
}

/** The bets of a lane: three buttons, and what became of them. */
class BetPanel {
  constructor(root, place) {
    this.root = root;
    this.buttons = OUTCOMES.map((outcome) => {
      const button = element('button', '');
      button.type = 'button';
      button.dataset.t = `bet_${outcome}`;
      button.addEventListener('click', () => place(outcome));
      return button;
    });
    root.querySelector('.outcomes').append(...this.buttons);
  }

  setEnabled(enabled) {
    this.buttons.forEach((button) => { button.disabled = !enabled; });
  }

  /** Shows the bets; what became of them once the verdict is shown. */
  update(lane, isJudged) {
    const { bets } = lane;
    const last = isJudged ? null : bets[bets.length - 1];
    const key = `${language} ${isJudged} ${bets.map((it) => `${it.outcome}${it.at}`)}`;
    if (this.shown === key) return;
    this.shown = key;
    OUTCOMES.forEach((outcome, index) => {
      this.buttons[index].setAttribute('aria-pressed', String(last?.outcome === outcome));
    });
    const rows = bets.map((bet) => (isJudged ? this.result(lane, bet) : this.placed(bet)));
    this.root.querySelector('.placed').replaceChildren(...rows);
  }

  placed({ outcome, at }) {
    const when = at === 0 ? t('bet_race') : t('bet_after', { at: seconds(at) });
    return element('li', t('bet_placed', { bet: t(`bet_${outcome}`), when }));
  }

  result(lane, bet) {
    const { right, text, why } = betResult(lane, bet);
    const row = element('li', '');
    row.append(element('b', `${right ? '✓' : '✗'} ${text}`, right ? 'good' : 'bad'));
    row.append(' ', element('span', why, 'detail'));
    return row;
  }
}
