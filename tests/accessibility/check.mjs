// Opens each page in each of its states, languages, colours and widths, and prints what axe finds.
//
//   AXE=axe.min.js node check.mjs page=URL board=URL report=URL learn=URL

import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

import { Browser } from './browser.mjs';

const SCREENS = { desktop: 1280, phone: 390 };
const SCHEMES = ['light', 'dark'];
const LANGUAGES = ['en', 'zh'];
const AXE = readFileSync(process.env.AXE, 'utf8');
const MAX_TRIES = 4;
/** What axe finds, each barrier with the elements and what it says of them. */
const LOOK = `${AXE}; const done = arguments[0];
  axe.run(document, { resultTypes: ['violations'] }).then(({ violations, passes }) => done({
    rules: passes.length,
    found: violations.flatMap(({ id, nodes }) => nodes.map((it) => (
      id + ': ' + it.target.join(' ') + ': ' + it.failureSummary.replaceAll('\\n', ' ')))),
  }));`;

const click = (selector) => (browser) => (
  browser.run(`document.querySelector('${selector}').click()`));
const shows = (expression) => (browser) => browser.waitUntil(expression);
const isVisible = (selector) => shows(`document.querySelector('${selector}')?.checkVisibility()`);
const all = (...steps) => async (browser) => {
  for (const step of steps) await step(browser);
};
const fill = (selector, text) => (browser) => (
  browser.run(`document.querySelector('${selector}').value = '${text}'`));
const openAll = (browser) => (
  browser.run("document.querySelectorAll('details').forEach((it) => { it.open = true; })"));

const reload = (browser) => browser.run('location.reload()');
const isTold = (selector, text) => (
  shows(`document.querySelector('${selector}')?.textContent.includes('${text}')`));

/**
 * Has the shop's page get these answers, by method and end of the path: what a queue or a sold-out
 * sale answers. A list is a stream that stays open, and null no answer. All else is asked for.
 */
const answers = (given) => (browser) => browser.run(`
  const given = ${JSON.stringify(given)};
  window.askService ??= window.fetch;
  const open = (events) => new ReadableStream({ start: (stream) => events.forEach((event) => (
    stream.enqueue(new TextEncoder().encode('data: ' + JSON.stringify(event) + '\\n\\n')))) });
  window.fetch = (path, how = {}) => {
    const matches = (key) => {
      const [method, end] = key.split(' ');
      return method === (how.method ?? 'GET') && path.endsWith(end);
    };
    const key = Object.keys(given).find(matches);
    if (!key) return window.askService(path, how);
    if (given[key] === null) return new Promise(() => {});
    if (Array.isArray(given[key])) return Promise.resolve(new Response(open(given[key])));
    const { status, ...body } = given[key];
    const type = status < 400 ? 'application/json' : 'application/problem+json';
    const headers = { 'content-type': type };
    return Promise.resolve(new Response(JSON.stringify(body), { status, headers }));
  };`);
const buy = click('[id^=buy-]:not([aria-disabled=true])');
const canBuy = shows("document.querySelector('[id^=buy-]:not([aria-disabled=true])')");
const PENDING = { id: 'a', status: 'pending', users_ahead: 2, expected_wait_s: 9 };

/** A race of 40 s, with a lock that is always held and waited for. */
const LONG_RACE = 'seed=1&users=1000&stock=1000&left=none,user,off,1&right=fair,voucher,off,1';
const isRunning = "!document.querySelector('#lane-left .faults button').disabled";
const canStart = shows("!document.getElementById('start').disabled");
const hasBegun = shows("document.getElementById('start').disabled");
const files = mkdtempSync(join(tmpdir(), 'accessibility-'));
let source = '';

/** Opens the race that the board has as a file, without a network. */
async function openSaved(browser) {
  source = await browser.run("return document.querySelector('.commands a.place').href");
  const file = join(files, 'race.html');
  writeFileSync(file, await browser.runAsync(
    "fetch(document.getElementById('save').href).then((it) => it.text()).then(arguments[0])",
  ));
  await setOffline(browser, true);
  await browser.open(`file://${file}`);
}

async function setOffline(browser, offline) {
  await browser.devtools('Network.enable', {});
  const network = { offline, latency: 0, downloadThroughput: -1, uploadThroughput: -1 };
  await browser.devtools('Network.emulateNetworkConditions', network);
}

async function openSource(browser) {
  await setOffline(browser, false);
  await browser.open(source);
}

async function openEarlier(browser) {
  await browser.open(new URL('/?token=earlier', source).href);
}

/** The panels of a race that runs have something to show. */
const hasRows = all(
  shows(isRunning),
  shows("document.querySelectorAll('.commands li').length > 40"),
  shows("document.querySelector('#lane-right .locks tbody tr')"),
  shows("document.querySelector('.log .violation')"),
);

const hasMenu = "document.querySelector('#lane-left .row-menu:popover-open')";
const openMenu = all(click('#lane-left .row-name'), shows(hasMenu));

/**
 * The states of each page, one after the other: a name, how it is reached, and if it ends by itself
 * what is true of it until then, and how it is reached again.
 */
const STATES = {
  page: [
    ['vouchers', isVisible('.ticket')],
    ['phone number', all(click('#account'), isVisible('#phone'))],
    ['refused number', all(
      fill('#phone', '12'), click('#phone-form [type=submit]'), isVisible('#phone-error'),
    )],
    ['code', all(
      fill('#phone', '13800000001'), click('#phone-form [type=submit]'), isVisible('#code-dev'),
    )],
    ['logged in', all(click('#code-form [type=submit]'), isVisible('#who'))],
    ['queued', all(
      answers({
        'POST /orders': { status: 202, ticket: PENDING },
        'GET /events': [{ ticket: PENDING }],
      }),
      canBuy, buy, isTold('.slip', 'You are in the queue.'),
    )],
    ['waiting for a unit', all(
      reload, canBuy,
      answers({
        'POST /orders': { status: 409, code: 'sold_out' },
        'GET /availability': { status: 200, available: false },
        'GET /api/vouchers': null,
      }),
      buy, isTold('.slip', 'if a unit comes back'),
    )],
    ['price changed', all(
      reload, canBuy,
      answers({
        'POST /orders': { status: 409, code: 'price_changed', price_cents: 9000 },
        'GET /api/vouchers': null,
      }),
      buy, isTold('.slip', 'The price has changed.'),
    )],
    ['bought', all(
      reload, canBuy, buy, isVisible('.slip'),
    )],
    ['orders', all(click('[data-route=orders]'), isVisible('.order-status'))],
    ['question', all(click('[data-part=cancel]'), isVisible('#sure'))],
  ],
  board: [
    ['running with panels open', all(
      hasBegun, canStart, (browser) => browser.run(`location.hash = '${LONG_RACE}'`), openAll,
      hasRows,
    ), isRunning, all(canStart, click('#start'), hasRows)],
    ['faults of a replica', openMenu, hasMenu,
      all(canStart, click('#start'), shows(isRunning), openMenu)],
    ['verdict', isVisible('#lane-left .verdict, #lane-right .verdict')],
    ['panels', all(openAll, shows("document.querySelector('#lane-left .lock-state').textContent"))],
    ['problem', all(
      canStart, fill('[name=users]', '5000'), click('#start'), isVisible('[aria-invalid=true]'),
    )],
    ['challenge', all(
      (browser) => browser.run("location.hash = 'challenge=3'"), isVisible('#challenge'), canStart,
    )],
    ['rung', all(
      (browser) => browser.run("location.hash = 'rung=lua-release'"), isVisible('#rung'),
      shows("document.getElementById('start').disabled"),
    )],
    ['verdict of a rung', all(isVisible('#lane-left .rung-outcome'), canStart)],
    ['saved race, offline', all(openSaved, isVisible('#lane-left .rung-outcome'), openAll)],
    ['source', all(openSource, isVisible('pre'))],
    ['address of an earlier board', all(openEarlier, isVisible('[lang=zh-CN]'))],
  ],
  report: [['closed', isVisible('h1')], ['all open', openAll]],
  learn: [['closed', isVisible('h1')], ['all open', openAll]],
};

async function look(browser, [width, scheme]) {
  const size = { width, height: 900, deviceScaleFactor: 1, mobile: width < 500 };
  await browser.devtools('Emulation.setDeviceMetricsOverride', size);
  const features = [{ name: 'prefers-color-scheme', value: scheme }];
  features.push({ name: 'prefers-reduced-motion', value: 'reduce' });
  await browser.devtools('Emulation.setEmulatedMedia', { features });
  // Colours that change slowly would be seen half way.
  await browser.runAsync('requestAnimationFrame(() => requestAnimationFrame(arguments[0]))');
}

/** What axe finds in a state. One that ends by itself is reached again if it ended meanwhile. */
async function lookAt(browser, isStill, again) {
  const isThere = () => !isStill || browser.run(`return ${isStill}`);
  for (let tries = 0; tries < MAX_TRIES; tries += 1) {
    if (!await isThere()) await again(browser);
    const seen = await browser.runAsync(LOOK);
    if (await isThere()) return seen;
  }
  throw new Error(`it ended in each of ${MAX_TRIES} looks: ${isStill}`);
}

/** Whether the page is in that language now: that of a source has only one. */
async function setLanguage(browser, language) {
  const lang = await browser.run('return document.documentElement.lang');
  if (lang.startsWith(language)) return true;
  if (!await browser.run("return Boolean(document.getElementById('language'))")) return false;
  await click('#language')(browser);
  return true;
}

const totals = { looks: 0, rules: 0 };
const barriers = new Map();
const browser = await Browser.start();
try {
  for (const argument of process.argv.slice(2)) {
    const [page, url] = argument.split(/=(.*)/s);
    await browser.open(url);
    for (const [state, reach, isStill, again] of STATES[page]) {
      await reach(browser);
      for (const language of LANGUAGES) {
        if (!await setLanguage(browser, language)) continue;
        for (const [screen, width] of Object.entries(SCREENS)) {
          for (const scheme of SCHEMES) {
            await look(browser, [width, scheme]);
            const { rules, found } = await lookAt(browser, isStill, again);
            totals.looks += 1;
            totals.rules += rules;
            for (const one of found) {
              const places = barriers.get(`${page}: ${one}`) ?? [];
              places.push([state, language, screen, scheme].join(' '));
              barriers.set(`${page}: ${one}`, places);
            }
          }
        }
      }
      await setLanguage(browser, 'en');
      await look(browser, [SCREENS.desktop, 'light']);
    }
  }
} finally {
  await browser.end();
  rmSync(files, { recursive: true });
}
for (const [what, places] of barriers) console.log(`${what}\n  in: ${places.join(', ')}`);
console.log(`accessibility: ${barriers.size} barriers in ${totals.looks} looks, `
  + `${Math.round(totals.rules / totals.looks)} rules held in each`);
process.exitCode = barriers.size ? 1 : 0;
