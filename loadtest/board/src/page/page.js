// Connects the parts: the stream, the form, the controls, the keyboard.

const LANES = ['left', 'right'];
const saved = JSON.parse(document.getElementById('saved').textContent);
const isReplay = saved !== null;
const calm = matchMedia('(prefers-reduced-motion: reduce)');
/** Between two pictures where motion is to be reduced. */
const CALM_MS = 500;
/** Between two positions of the scrubber while a race plays. */
const SCRUB_MS = 100;
const get = (id) => document.getElementById(id);

const player = new Player();
let model = null;
let span = Number(get('window').value);
/** The race of a link that was refused while another one ran. The form keeps it. */
let wanted = null;
/** Bets on the race that was asked for. */
let betsOfForm = {};
/** Why the last race that was asked for did not start. */
let refusal = null;

const jump = (time) => player.show(time);
const views = LANES.map((name) => new LaneView(name, { inject, jump, bet }));
const announcer = new Announcer(get('live'));
const challenges = new ChallengePanel(get('challenge'), get('form'));
const rungs = new RungPanel(get('rung'), get('form'));
const stream = new EventStream({ take, refresh: refreshState });

// The race in the address: `seed=1&users=200&stock=200&left=local,user,off,3&right=...`. A fifth
// word, `fenced`, has holders of the lane show fencing tokens. A challenge is its number and the
// lane of the reader: `challenge=3&right=redlock,voucher,off,2`. A rung is its name: `rung=setnx`.

function setupOfAddress() {
  const fields = new URLSearchParams(location.hash.slice(1));
  const setup = {};
  if (fields.has('rung')) {
    setup.rung = fields.get('rung');
    ['users', 'stock', ...LANES].forEach((name) => fields.delete(name));
  } else if (fields.has('challenge')) {
    setup.challenge = Number(fields.get('challenge'));
    fields.delete('left');
  }
  for (const name of ['seed', 'users', 'stock']) {
    if (fields.has(name)) setup[name] = Number(fields.get(name));
  }
  for (const name of LANES.filter((one) => fields.has(one))) {
    const [lock, scope, guards, replicas, more] = fields.get(name).split(',');
    setup[name] = { lock, scope, guards, replicas: Number(replicas), fenced: more === 'fenced' };
  }
  return setup;
}

function addressOf(setup) {
  const cell = ({ lock, scope, guards, replicas, fenced }) => (
    [lock, scope, guards, replicas, ...(fenced ? ['fenced'] : [])].join(',')
  );
  const [left, right] = setup.lanes.map(cell);
  const { seed, users, stock, challenge, rung } = setup;
  if (rung) return `#rung=${rung}&seed=${seed}`;
  if (challenge) return `#challenge=${challenge.number}&right=${right}`;
  return `#seed=${seed}&users=${users}&stock=${stock}&left=${left}&right=${right}`;
}

// The form.

function fillForm({ challenge, rung, lanes, ...race }) {
  const form = get('form');
  challenges.show(challenge?.number ?? null);
  rungs.show(rung ?? null);
  for (const name of ['seed', 'users', 'stock']) form.elements[name].value = race[name];
  LANES.forEach((lane, index) => {
    const fields = form.querySelector(`[data-lane="${lane}"]`);
    for (const [name, value] of Object.entries(lanes[index])) {
      const field = fields.querySelector(`[name="${name}"]`);
      // A bug cannot be chosen.
      if (field) field.value = value;
    }
  });
}

/** A number field as a number; what is none is sent as it is, and the server names the limit. */
function numberOf(input) {
  return input.value.trim() === '' || Number.isNaN(Number(input.value))
    ? input.value : Number(input.value);
}

function setupOfForm() {
  const form = get('form');
  const setup = {};
  for (const name of ['seed', 'users', 'stock']) setup[name] = numberOf(form.elements[name]);
  for (const name of LANES) {
    const field = (member) => form.querySelector(`[data-lane="${name}"] [name="${member}"]`);
    const [lock, scope, guards] = ['lock', 'scope', 'guards'].map((member) => field(member).value);
    const [replicas, fenced] = [numberOf(field('replicas')), field('fenced').value === 'true'];
    setup[name] = { lock, scope, guards, replicas, fenced };
  }
  if (rungs.rung) return rungs.setup(setup);
  return challenges.challenge ? challenges.setup(setup) : setup;
}

function fieldOf(name) {
  const [lane, member] = name.split('.');
  const selector = member ? `[data-lane="${lane}"] [name="${member}"]` : `[name="${lane}"]`;
  return get('form').querySelector(selector);
}

function drawProblem() {
  setText(get('problem'), refusal ? problemText(refusal) : '');
}

function showProblem(answer) {
  refusal = answer;
  const marked = get('form').querySelectorAll('[aria-invalid]');
  marked.forEach((it) => it.removeAttribute('aria-invalid'));
  drawProblem();
  const field = answer?.field && fieldOf(answer.field);
  if (field) {
    field.setAttribute('aria-invalid', 'true');
    field.focus();
  }
}

async function startRace(setup) {
  const { ok, answer } = await post('race', setup);
  showProblem(ok ? null : answer);
  return answer;
}

/**
 * Starts the race of the address. While another one runs, it only fills the form. Without a race in
 * the address, any race may be shown.
 */
async function openAddress() {
  const setup = setupOfAddress();
  const isLink = Object.keys(setup).length > 0;
  wanted = null;
  const answer = await startRace({ ...setup, ...(isLink ? { link: true } : { first: true }) });
  if (answer?.code === 'race_running') wanted = setup;
  // A refusal says what the form has by default; a race that is shown has its own.
  if (answer?.setup && (wanted || !model)) fillForm(answer.setup);
  refreshState();
}

async function inject(fault) {
  const { ok, answer } = await post('fault', fault, FAULT_ANSWER_MS);
  return ok ? () => [saidNode(answer.witness)] : () => problemNodes(answer);
}

function bet(name, outcome) {
  const index = LANES.indexOf(name);
  if (!model || model.lanes[index].verdict) return;
  const at = model.state === 'running' ? model.known : 0;
  if (placeBet(model.lanes[index], outcome, at)) return;
  views[index].answer(() => [t('bets_full', { most: MAX_BETS })]);
}

// Events.

function begin(race, setup) {
  model = new RaceModel(race, setup);
  model.lanes.forEach((lane, index) => {
    const outcome = betsOfForm[LANES[index]];
    if (outcome) placeBet(lane, outcome, 0);
  });
  betsOfForm = {};
  player.restart();
  announcer.restart();
  views.forEach((view, index) => view.reset(model.lanes[index]));
  if (wanted) return;
  fillForm(setup);
  if (!isReplay) history.replaceState(null, '', location.search + addressOf(setup));
}

function take({ race, setup, events }) {
  if (setup) begin(race, setup);
  if (!model) return;
  events.forEach((event) => model.add(event));
  // Requests, faults and what is known of them change no state.
  if (setup || events.some(([sort]) => 'svc'.includes(sort))) refreshState();
}

/** The state by which its text is found. */
function shownState() {
  if (!model) return refusal ? 'refused' : 'opening';
  return isReplay && !model.isOver ? 'saved_early' : model.state;
}

function refreshState() {
  const state = shownState();
  const isBusy = Boolean(model) && !model.isOver;
  const detail = model?.detail ?? (refusal ? problemText(refusal) : '');
  // The log of a race has a bound; what was beyond it is counted.
  const more = state === 'done' && detail ? ` ${t('left_out', { count: detail })}` : '';
  const { problem } = stream;
  const nodes = problem
    ? [problemText(problem)] : [...textNodes(`state_${state}`, { detail }), more];
  setNodes(get('state'), nodes);
  const hasFailed = Boolean(problem) || ['failed', 'refused'].includes(state);
  get('state').classList.toggle('failed', hasFailed);
  get('start').disabled = isBusy || Boolean(problem);
  get('save').setAttribute('aria-disabled', String(!model));
  get('picture').disabled = !model;
  const hasOwnFault = Boolean(model?.setup.challenge || model?.setup.rung);
  views.forEach((view, index) => {
    view.setFaults(state === 'running' && !problem && !hasOwnFault);
    view.explainFaults(hasOwnFault);
    view.bets.setEnabled(isBusy && !model.lanes[index].verdict);
  });
}

// Time.

function drawTicks() {
  const end = Math.max(1, model.known);
  const ticks = [];
  model.lanes.forEach((lane, index) => {
    for (const time of [lane.oversoldAt, lane.secondAt]) {
      if (time <= model.known) ticks.push([time, LANES[index]]);
    }
    for (const mark of lane.marks) {
      const glyph = markGlyph(mark);
      if (glyph || mark.phase === 'begin') ticks.push([mark.t, glyph ? 'glyph' : 'fault', glyph]);
    }
  });
  const key = `${end} ${ticks.length}`;
  if (get('ticks').dataset.key === key) return;
  get('ticks').dataset.key = key;
  get('ticks').replaceChildren(...ticks.map(([time, name, glyph = '']) => {
    const tick = element('i', glyph, name);
    tick.style.left = `${(time / end) * 100}%`;
    return tick;
  }));
}

let lastScrub = 0;

/** Shows the time; the scrubber and its marks follow a race that plays a few times a second. */
function refreshTime(now) {
  setText(get('clock'), `${seconds(player.head)} / ${seconds(model.known)}`);
  if (player.isPlaying && now - lastScrub < SCRUB_MS) return;
  lastScrub = now;
  const scrubber = get('scrubber');
  scrubber.max = String(Math.ceil(model.known / 1000));
  scrubber.value = String(Math.round(player.head / 1000));
  scrubber.setAttribute('aria-valuetext', seconds(player.head));
  setText(get('play'), t(player.isPlaying ? 'pause' : 'play'));
  const { at, name } = model.landmark;
  setText(get('jump'), t(name));
  get('jump').disabled = at === Infinity;
  drawTicks();
}

/** Announces what a reader who does not see the lanes has to know, each once. */
function announceNews() {
  model.lanes.forEach((lane, index) => {
    const say = (key, text) => announcer.once(key + index, `${t(LANES[index])}: ${text}`);
    if (lane.secondAt <= player.head) {
      say('second', t('news_second', { at: seconds(lane.secondAt) }));
    }
    if (lane.oversoldAt <= player.head) {
      say('oversold', t('news_oversold', { at: seconds(lane.oversoldAt) }));
    }
    if (!lane.isJudgedAt(player.head)) return;
    const { rung } = lane.verdict;
    const ofRung = rung ? ` ${t(`rung_outcome_${rung.outcome}`)}` : '';
    say('verdict', t('outcome', lane.verdict) + ofRung);
    lane.bets.forEach((one) => {
      const { text, why } = betResult(lane, one);
      say(`bet${one.at}`, `${text} ${why}`);
    });
  });
  announcer.flush();
}

/** What became of the challenge of the panel, if the end of its race is shown. */
function shownResult() {
  const isOfPanel = model.setup.challenge?.number === challenges.challenge?.number;
  return isOfPanel && model.lanes[1].isJudgedAt(player.head) ? model.challengeResult : null;
}

let lastFrame = performance.now();
let lastPicture = 0;
function frame(now) {
  if (model) {
    player.tick(model, now - lastFrame);
    if (!calm.matches || !player.isPlaying || now - lastPicture >= CALM_MS) {
      lastPicture = now;
      views.forEach((view) => view.update(player.head, span, player.isPlaying));
      challenges.update(shownResult());
      refreshTime(now);
      announceNews();
    }
  }
  lastFrame = now;
  requestAnimationFrame(frame);
}

// Controls.

const actions = {
  play: () => player.toggle(model),
  back: () => player.back(model),
  step: () => player.step(model),
  latest: () => player.latest(model),
  jump: () => { if (model.landmark.at < Infinity) player.show(model.landmark.at); },
};
for (const [id, act] of Object.entries(actions)) {
  get(id).addEventListener('click', () => { if (model) act(); });
}
get('speed').addEventListener('change', (event) => { player.speed = Number(event.target.value); });
get('window').addEventListener('change', (event) => { span = Number(event.target.value); });
get('scrubber').addEventListener('input', (event) => {
  player.show(Number(event.target.value) * 1000);
});
get('form').addEventListener('submit', async (event) => {
  event.preventDefault();
  const form = get('form');
  const bets = LANES.map((name) => [name, form.querySelector(`[data-lane="${name}"] .bet`).value]);
  const placed = Object.fromEntries(bets);
  [wanted, betsOfForm] = [null, placed];
  const { started } = await startRace(setupOfForm());
  // They are bets on no other race.
  if (!started && betsOfForm === placed) betsOfForm = {};
});
get('save').addEventListener('click', (event) => { if (!model) event.preventDefault(); });
get('picture').addEventListener('click', () => {
  const roots = LANES.map((name) => get(`lane-${name}`));
  const seed = `${t('seed')} ${model.setup.seed}`;
  const heading = [t('title'), seed, get('clock').textContent].join(' · ');
  savePicture(drawMoment(roots, heading), `race-${seconds(player.head).replace(' ', '')}.png`);
});
get('language').addEventListener('click', () => {
  switchLanguage();
  translate();
});
const KEYS = { ' ': 'play', ',': 'back', '.': 'step', v: 'jump', l: 'latest' };
// Keys of one character belong to the lanes and the time: nowhere else do they do anything.
addEventListener('keydown', (event) => {
  const { target, key } = event;
  const isStage = target.closest?.('#lanes, #time') && !target.closest('.log, .commands, .locks');
  const isField = target.closest?.('input:not([type=range]), select');
  const isPressed = key === ' ' && target.closest?.('button, a, summary');
  const action = KEYS[key];
  if (!model || !isStage || isField || isPressed || !action) return;
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  event.preventDefault();
  actions[action]();
});
matchMedia('(prefers-color-scheme: dark)').addEventListener('change', readPalette);
// Another race was pasted into the address.
addEventListener('hashchange', () => {
  if (!isReplay && location.hash.includes('=')) openAddress();
});
// The address keeps what is raced.
document.querySelector('.skip').addEventListener('click', (event) => {
  event.preventDefault();
  get('lanes').focus();
});

function translate() {
  applyWords();
  views.forEach((view) => view.translate());
  challenges.translate();
  rungs.translate();
  drawProblem();
  refreshState();
}

for (const name of LANES) {
  const fields = document.querySelector(`[data-lane="${name}"]`);
  fields.append(get('cell-template').content.cloneNode(true));
}
document.body.classList.toggle('replay', isReplay);
get('save').href = `save?token=${encodeURIComponent(token)}`;
readPalette();
translate();
requestAnimationFrame(frame);
if (isReplay) {
  take(saved);
} else {
  stream.start();
  openAddress();
}
