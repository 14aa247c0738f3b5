// The strip that shows which replica gave each of the last answers, and how fast.

import { onAnswer } from './http.js';
import { byId, el } from './dom.js';

const SHOWN = 8;
const TONES = 6; // as many as style.css has colours for

const tones = new Map(); // replica -> tone, in order of appearance

export function init() {
  onAnswer((answer) => {
    const list = byId('answers-list');
    list.prepend(chip(answer));
    while (list.childElementCount > SHOWN) list.lastElementChild.remove();
    if (answer.lab) showMode(answer.lab);
  });
}

/** Shows the mode in `X-Lab`, which no real sale must have. */
function showMode(mode) {
  byId('lab').textContent = /lab|plant/.test(mode)
    ? 'Laboratory mode: protections may be switched off here on purpose.'
    : 'Development mode: login codes are shown on the page.';
  byId('lab').hidden = false;
}

function chip({ replica, status, ms, method, path, failure }) {
  const name = failure ? 'no answer' : replica || 'no replica';
  const item = el('li', 'chip');
  item.append(el('span', 'dot'), el('span', 'chip-name', name), el('span', 'chip-ms', `${ms} ms`));
  item.title = `${method} ${path.split('?')[0]}: ${failure || `status ${status}`}`;
  item.dataset.tone = failure || !replica ? 'none' : toneOf(replica);
  if (failure || status >= 500) item.classList.add('bad');
  return item;
}

function toneOf(replica) {
  if (!tones.has(replica)) tones.set(replica, String(tones.size % TONES));
  return tones.get(replica);
}
