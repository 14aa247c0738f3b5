// The commands of a lane as they pass, each with the line that sends it. The board records them
// while this panel asks for them.

const COMMANDS_INTERVAL_MS = 500;
const MAX_COMMANDS = 200;

class CommandPanel {
  constructor(root, lane) {
    [this.root, this.lane] = [root, lane];
    this.list = root.querySelector('ol');
    this.restart();
    root.addEventListener('toggle', () => this.follow());
  }

  restart() {
    this.commands = [];
    this.passed = 0;
    this.races = (this.races ?? 0) + 1;
    this.translate();
  }

  /** Asks for more while the panel is open. */
  async follow() {
    if (this.isAsking) return;
    this.isAsking = true;
    while (this.root.open) {
      if (!document.hidden) await this.ask();
      await new Promise((done) => { setTimeout(done, COMMANDS_INTERVAL_MS); });
    }
    this.isAsking = false;
  }

  async ask() {
    const last = this.commands[0];
    const from = last ? last.id + 1 : 0;
    const { races } = this;
    try {
      const query = new URLSearchParams({ token, lane: this.lane, from });
      const response = await fetch(`commands?${query}`, { signal: AbortSignal.timeout(ANSWER_MS) });
      if (!response.ok) return;
      const answer = await response.json();
      // A question of the last race may be answered late.
      if (races === this.races) this.take(answer);
    } catch {
      // The line of the state says that the board does not answer.
    }
  }

  take({ commands, passed }) {
    this.passed = passed;
    this.commands = [...commands.reverse(), ...this.commands].slice(0, MAX_COMMANDS);
    if (commands.length) {
      this.list.prepend(...commands.map((it) => this.row(it)));
      while (this.list.children.length > MAX_COMMANDS) this.list.lastChild.remove();
    }
    this.tell();
  }

  tell() {
    const count = this.commands.length;
    const values = { count, skipped: Math.max(0, this.passed - count) };
    setText(this.root.querySelector('.count'), t('commands_count', values));
  }

  row({ t: time, from, replica, text, source }) {
    const row = element('li', '', from === 'script' ? 'inner' : '');
    const origin = t(`from_${from}`, { replica });
    row.append(element('time', seconds(time)), element('b', origin), element('code', text));
    if (!source) {
      row.append(element('span', t('no_source'), 'place'));
      return row;
    }
    const place = element('a', `${source.path}:${source.line}`, 'place');
    place.href = `source/${source.path}?${new URLSearchParams({ token })}#L${source.line}`;
    [place.target, place.rel] = ['_blank', 'noopener'];
    row.append(place, element('code', source.text, 'line'));
    return row;
  }

  translate() {
    this.list.replaceChildren(...this.commands.map((it) => this.row(it)));
    this.tell();
  }
}
