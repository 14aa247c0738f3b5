// Bets of the reader on a lane: what happens after the bet, until the race is over. A bet that is
// placed before the race, or in a rung, is about all of it.

/** The violations that an outcome is about. */
const VIOLATIONS = {
  holds: ['oversold', 'second'],
  oversells: ['oversold'],
  duplicates: ['second'],
  breaks: ['oversold', 'second'],
};
const OUTCOMES = Object.keys(VIOLATIONS);
/** Whether the lock of a rung broke, by what the rung says of the lane. */
const RUNG_BROKE = { broke: true, wrong: true, withstood: false };
/** What the lock or the guards of a cell prevent, by the reason in its verdict. */
const PREVENTED = { guarded: VIOLATIONS.holds, voucher: VIOLATIONS.holds, user: ['second'] };
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

/**
 * The units oversold after a bet, the users who bought twice after it, and which of these two
 * counts may be too low. The judge counts them for a whole race. For a part of it, acknowledged
 * orders are counted: the database does not tell when the others were written.
 */
function afterBet(lane, at) {
  const judged = { oversold: lane.verdict.oversold, second: lane.verdict.duplicates };
  if (at === 0) return { ...judged, unsure: [] };
  const oversold = lane.orders.slice(lane.stock).filter((time) => time > at).length;
  const pairs = lane.secondOrders.filter(({ second }) => second.end > at);
  const second = new Set(pairs.map((pair) => pair.second.user)).size;
  const hasOthers = lane.verdict.orders > lane.orders.length;
  const unsure = Object.keys(judged).filter((name) => hasOthers && judged[name] > 0);
  return { oversold, second, unsure };
}

/**
 * What the rung of the lane says of these bets: a lock may break without an oversell or a
 * duplicate.
 */
function rungOutcome({ verdict }, outcome) {
  return ['holds', 'breaks'].includes(outcome) ? verdict.rung?.outcome : undefined;
}

/**
 * `right`, `wrong`, or `undecided` if orders of an unknown time may decide it, or if the rung was
 * not shown.
 */
function decide(lane, outcome, after) {
  const ofRung = rungOutcome(lane, outcome);
  if (ofRung) {
    if (!(ofRung in RUNG_BROKE)) return 'undecided';
    return RUNG_BROKE[ofRung] === (outcome === 'breaks') ? 'right' : 'wrong';
  }
  const violations = VIOLATIONS[outcome];
  const isViolated = violations.some((name) => after[name] > 0);
  if (!isViolated && violations.some((name) => after.unsure.includes(name))) return 'undecided';
  return isViolated === (outcome !== 'holds') ? 'right' : 'wrong';
}

/** How two purchases of one user both succeeded, as far as replicas reported. */
function secondOrderText(lane, { earlier, second }) {
  const values = {
    user: second.user, n: second.n, other: earlier.n, r: second.replica, r2: earlier.replica,
  };
  if (lane.overlaps.some(({ a, b }) => [a, b].every((it) => it === earlier || it === second))) {
    return t('why_overlap', values);
  }
  const lost = [earlier, second].find((it) => it.lost);
  if (lost) return t('why_lost', { ...values, n: lost.n, r: lost.replica });
  const areTold = earlier.from !== undefined && second.from !== undefined;
  return t(areTold ? 'why_no_overlap' : 'why_not_told', values);
}

/** How more units than the stock were sold without a second order, as far as was seen. */
function oversoldText(lane, at) {
  const units = lane.cell.scope === 'voucher' && lane.overlaps.find((it) => it.from > at);
  if (units) return t('why_units', { n: units.a.n, other: units.b.n });
  const lost = lane.requests.find((it) => it.lost && it.sort === 'o' && it.end > at);
  return lost && t('why_lost', { n: lost.n, r: lost.replica });
}

/** Why it came so: the first violation that was seen, and what the lock can do. */
function whyText(lane, at, after) {
  const { oversold, second, unsure } = after;
  const texts = [];
  if (unsure.length) {
    texts.push(t('why_unsure', { orders: lane.verdict.orders, known: lane.orders.length }));
  }
  const pair = lane.secondOrders.find((it) => it.second.end > at);
  if (second && pair) texts.push(secondOrderText(lane, pair));
  if (oversold && !second) texts.push(oversoldText(lane, at));
  const faults = lane.marks.filter((it) => it.phase === 'witness' && it.t >= at);
  const isKept = !oversold && !second && !unsure.length;
  if (isKept && faults.length && !RUNG_BROKE[lane.verdict.rung?.outcome]) {
    texts.push(t('why_faults', { count: faults.length }));
  }
  // A promise that was broken explains nothing.
  const { why } = lane.verdict;
  if (!PREVENTED[why]?.some((name) => after[name] > 0)) texts.push(t(`why_${why}`));
  return texts.filter(Boolean).join(' ') || t('why_not_seen');
}

/** From when on a bet counts: what a rung says is said of the whole race. */
function betStart(lane, { at }) {
  return lane.rung ? 0 : at;
}

function whenText(at) {
  return at === 0 ? t('bet_race') : t('bet_after', { at: seconds(at) });
}

/** What became of a bet at the verdict, in the language of the reader. */
function betResult(lane, placed) {
  const { outcome } = placed;
  const at = betStart(lane, placed);
  const after = afterBet(lane, at);
  const decision = decide(lane, outcome, after);
  const when = whenText(at);
  const bet = t(`bet_${outcome}`);
  const ofRung = rungOutcome(lane, outcome);
  const counts = ofRung
    ? t(`rung_outcome_${ofRung}`) : t(at === 0 ? 'bet_counts' : 'bet_counts_acknowledged', after);
  const text = t(`bet_${decision}`, { bet, when, counts });
  return { decision, text, why: whyText(lane, at, after) };
}

const DECISION_SIGNS = { right: '✓', wrong: '✗', undecided: '?' };
const DECISION_CLASSES = { right: 'good', wrong: 'bad', undecided: '' };

/** The bets of a lane: a button for each outcome, and what became of them. */
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

  /** Offers the bet that the lock breaks, which only a rung decides. */
  offerBreaks(isRung) {
    this.buttons[OUTCOMES.indexOf('breaks')].hidden = !isRung;
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
    const rows = bets.map((bet) => (isJudged ? this.result(lane, bet) : this.placed(lane, bet)));
    this.root.querySelector('.placed').replaceChildren(...rows);
  }

  placed(lane, bet) {
    const when = whenText(betStart(lane, bet));
    return element('li', t('bet_placed', { bet: t(`bet_${bet.outcome}`), when }));
  }

  result(lane, bet) {
    const { decision, text, why } = betResult(lane, bet);
    const row = element('li', '');
    row.append(element('b', `${DECISION_SIGNS[decision]} ${text}`, DECISION_CLASSES[decision]));
    row.append(' ', element('span', why, 'detail'));
    return row;
  }
}
