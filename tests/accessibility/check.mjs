// Opens each page in each of its states, languages, colours and widths, and prints what axe finds.
//
//   AXE=axe.min.js node check.mjs page=URL board=URL report=URL learn=URL

import { readFileSync } from 'node:fs';

import { Browser } from './browser.mjs';

const SCREENS = { desktop: 1280, phone: 390 };
const SCHEMES = ['light', 'dark'];
const LANGUAGES = ['en', 'zh'];
const AXE = readFileSync(process.env.AXE, 'utf8');
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

/** The states of each page, one after the other. */
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
    ['bought', all(click('[id^=buy-]:not(:disabled)'), isVisible('.slip'))],
    ['orders', all(click('[data-route=orders]'), isVisible('.order-status'))],
    ['question', all(click('[data-part=cancel]'), isVisible('#sure'))],
  ],
  board: [
    ['running', shows("!document.querySelector('#lane-left .faults button').disabled")],
    ['verdict', isVisible('#lane-left .verdict, #lane-right .verdict')],
    ['panels', all(openAll, shows("document.querySelector('#lane-left .lock-state').textContent"))],
    ['problem', all(
      shows("!document.getElementById('start').disabled"),
      fill('[name=users]', '5000'), click('#start'), isVisible('[aria-invalid=true]'),
    )],
    ['challenge', all(
      (browser) => browser.run("location.hash = 'challenge=3'"), isVisible('#challenge'),
      shows("!document.getElementById('start').disabled"),
    )],
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

async function setLanguage(browser, language) {
  const lang = await browser.run('return document.documentElement.lang');
  if (!lang.startsWith(language)) await click('#language')(browser);
}

const totals = { looks: 0, rules: 0 };
const barriers = new Map();
const browser = await Browser.start();
try {
  for (const argument of process.argv.slice(2)) {
    const [page, url] = argument.split(/=(.*)/s);
    await browser.open(url);
    for (const [state, reach] of STATES[page]) {
      await reach(browser);
      for (const language of LANGUAGES) {
        await setLanguage(browser, language);
        for (const [screen, width] of Object.entries(SCREENS)) {
          for (const scheme of SCHEMES) {
            await look(browser, [width, scheme]);
            const { rules, found } = await browser.runAsync(LOOK);
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
}
for (const [what, places] of barriers) console.log(`${what}\n  in: ${places.join(', ')}`);
console.log(`accessibility: ${barriers.size} barriers in ${totals.looks} looks, `
  + `${Math.round(totals.rules / totals.looks)} rules held in each`);
process.exitCode = barriers.size ? 1 : 0;
