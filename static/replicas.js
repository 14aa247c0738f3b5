// The strip that shows which replica gave each of the last answers, and how fast.

import { onAnswer } from './http.js';
import { byId, el } from './dom.js';
import { onLanguage, t } from './language.js';

const SHOWN = 8;
const TONES = 6; // as many as style.css has colours for

const tones = new Map(); // replica -> tone, in order of appearance
let mode = ''; // in the last answer that had it

export function init() {
  onAnswer((answer) => {
    const list = byId('answers-list');
    list.prepend(chip(answer));
    while (list.childElementCount > SHOWN) list.lastElementChild.remove();
    if (answer.lab) mode = answer.lab;
    drawMode();
  });
  onLanguage(drawMode);
}

// Shows the mode in `X-Lab`, which no real sale must have.
function drawMode() {
  byId('lab').hidden = mode === '';
  if (mode) byId('lab').textContent = t(/lab/.test(mode) ? 'foot.lab' : 'foot.dev');
}

function chip({ replica, status, ms, method, path, failure }) {
  const name = failure ? t('answers.none') : replica || t('answers.no_replica');
  const item = el('li', 'chip');
  item.append(el('span', 'dot'), el('span', 'chip-name', name), el('span', 'chip-ms', `${ms} ms`));
  item.title = `${method} ${path.split('?')[0]}: ${failure ? t('answers.none') : status}`;
  item.dataset.tone = failure || !replica ? 'none' : toneOf(replica);
  if (failure || status >= 500) item.classList.add('bad');
  return item;
}

function toneOf(replica) {
  if (!tones.has(replica)) tones.set(replica, String(tones.size % TONES));
  return tones.get(replica);
}
