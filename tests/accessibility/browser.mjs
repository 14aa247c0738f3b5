// A headless Chromium, driven by chromedriver.

import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { createInterface } from 'node:readline';

const POLL_MS = 50;
/** A race of a rung with its judge, on a busy machine. */
const DEADLINE_MS = 180000;

export class Browser {
  static async start() {
    const browser = new Browser();
    browser.driver = spawn('chromedriver', ['--port=0'], { stdio: ['ignore', 'pipe', 'ignore'] });
    for await (const line of createInterface({ input: browser.driver.stdout })) {
      const port = line.match(/successfully on port (\d+)/)?.[1];
      if (!port) continue;
      browser.address = `http://127.0.0.1:${port}`;
      break;
    }
    if (!browser.address) throw new Error('chromedriver did not say its port');
    browser.driver.stdout.resume();
    const args = ['--headless=new', '--no-sandbox', '--disable-gpu', '--hide-scrollbars'];
    const alwaysMatch = { 'goog:chromeOptions': { args }, timeouts: { script: DEADLINE_MS } };
    const { sessionId } = await browser.call('POST', '/session', { capabilities: { alwaysMatch } });
    browser.session = `/session/${sessionId}`;
    return browser;
  }

  async call(method, path, body) {
    const answer = await fetch(this.address + path, {
      method,
      headers: { 'content-type': 'application/json' },
      body: body && JSON.stringify(body),
    });
    const { value } = await answer.json();
    if (!answer.ok) throw new Error(`${path}: ${value.message}`);
    return value;
  }

  command(path, body) {
    return this.call('POST', this.session + path, body);
  }

  devtools(cmd, params) {
    return this.command('/goog/cdp/execute', { cmd, params });
  }

  open(url) {
    return this.command('/url', { url });
  }

  /** What the body of a function gives. */
  run(script) {
    return this.command('/execute/sync', { script, args: [] });
  }

  /** What the body gives to the function that it gets as its only argument. */
  runAsync(script) {
    return this.command('/execute/async', { script, args: [] });
  }

  async waitUntil(expression) {
    const begun = performance.now();
    while (!await this.run(`return Boolean(${expression})`)) {
      if (performance.now() - begun > DEADLINE_MS) throw new Error(`never true: ${expression}`);
      await new Promise((done) => { setTimeout(done, POLL_MS); });
    }
  }

  async end() {
    const hasEnded = once(this.driver, 'exit');
    await this.call('DELETE', this.session).catch(() => {});
    this.driver.kill();
    await hasEnded;
  }
}
