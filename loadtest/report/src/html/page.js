// Opens cells from the matrix and draws the curves of those that are open.
'use strict';

const plots = JSON.parse(document.getElementById('plots').textContent);
const cells = [...document.querySelectorAll('details.cell')];
const drawn = new Map();

function draw(cell) {
  const box = cell.querySelector('[data-plot]');
  const data = box && plots[box.dataset.plot];
  if (!cell.open || !data) return;
  (drawn.get(cell) ?? []).forEach((plot) => plot.destroy());
  const one = course(box.querySelector('.course'), data);
  const other = latency(box.querySelector('.latency'), data);
  // The library's legends do not say that their headers head rows.
  box.querySelectorAll('.u-legend th').forEach((head) => { head.scope = 'row'; });
  drawn.set(cell, [one, other]);
}

function redraw() {
  cells.filter((cell) => drawn.has(cell)).forEach(draw);
}

// Also for links that the reader did not click, such as the address itself.
function show() {
  const body = document.getElementById(decodeURIComponent(location.hash.slice(1)));
  const cell = body?.closest('details.cell');
  if (!cell) return;
  cell.open = true;
  draw(cell);
  cell.scrollIntoView();
  cell.querySelector('summary').focus({ preventScroll: true });
}

function openAll(open) {
  cells.forEach((cell) => { cell.open = open; });
}

function addTools() {
  const tools = document.createElement('div');
  tools.className = 'tools';
  for (const [key, open] of [['open_all', true], ['close_all', false]]) {
    const button = document.createElement('button');
    button.type = 'button';
    button.dataset.t = key;
    button.textContent = t(key);
    button.addEventListener('click', () => openAll(open));
    tools.append(button);
  }
  document.getElementById('cells-title').after(tools);
}

cells.forEach((cell) => cell.addEventListener('toggle', () => {
  if (cell.open && !drawn.has(cell)) draw(cell);
}));
document.getElementById('matrix').addEventListener('click', (event) => {
  const link = event.target.closest('a');
  // The same link again changes no address.
  if (link && link.hash === location.hash) show();
});
addEventListener('hashchange', show);
matchMedia('(prefers-color-scheme: dark)').addEventListener('change', redraw);

let resized;
addEventListener('resize', () => {
  clearTimeout(resized);
  resized = setTimeout(redraw, 150);
});

// On paper everything is open, and the curves have the colours of paper.
let opened = [];
addEventListener('beforeprint', () => {
  opened = [...document.querySelectorAll('details:not([open])')];
  document.documentElement.classList.add('paper');
  opened.forEach((closed) => { closed.open = true; });
  cells.forEach(draw);
});
addEventListener('afterprint', () => {
  document.documentElement.classList.remove('paper');
  opened.forEach((closed) => { closed.open = false; });
  redraw();
});

function nameLanguage() {
  const button = document.getElementById('language');
  button.lang = otherLanguage();
  button.hidden = false;
}

document.getElementById('language').addEventListener('click', () => {
  switchLanguage();
  nameLanguage();
  redraw();
});

addTools();
// The page is written in one of the languages already.
if (language !== document.documentElement.lang) applyWords();
nameLanguage();
// Surprises are open from the start.
cells.forEach(draw);
show();
