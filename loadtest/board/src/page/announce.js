// What a screen reader says. Texts that come together are one line; each line is added below the
// last, so that none is lost.

const MAX_LINES = 20;

class Announcer {
  constructor(log) {
    this.log = log;
    this.restart();
  }

  restart() {
    this.said = new Set();
    this.news = [];
    this.log.replaceChildren();
  }

  /** Takes a text that is said once in a race. */
  once(key, text) {
    if (this.said.has(key)) return;
    this.said.add(key);
    this.news.push(text);
  }

  /** Says what was taken since the last time. */
  flush() {
    if (!this.news.length) return;
    this.log.append(element('p', this.news.join(' ')));
    this.news = [];
    while (this.log.children.length > MAX_LINES) this.log.firstChild.remove();
  }
}
