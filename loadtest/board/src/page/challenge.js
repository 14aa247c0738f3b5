// Challenges: what is given, what the reader may change, and what became of it. The left lane is
// the given one, the right lane that of the reader.

const CHALLENGES = JSON.parse(document.getElementById('challenges-data').textContent);

function challengeOf(number) {
  return CHALLENGES.find((it) => it.number === number) ?? null;
}

class ChallengePanel {
  constructor(root, form) {
    [this.root, this.form] = [root, form];
    this.challenge = null;
    this.result = null;
  }

  /** Shows a challenge, or none. The form then allows what the challenge allows. */
  show(number) {
    this.challenge = challengeOf(number);
    this.result = null;
    this.root.hidden = !this.challenge;
    const allowed = this.challenge?.may_change;
    this.form.querySelectorAll('fieldset').forEach((fields) => {
      const isOwn = fields.dataset.lane === 'right';
      fields.querySelectorAll('[name]').forEach((field) => {
        field.disabled = Boolean(allowed) && !(isOwn && allowed.includes(field.name));
      });
    });
    this.translate();
  }

  /** What is sent of a race that the form describes. */
  setup(race) {
    const { number, may_change: fields } = this.challenge;
    const right = Object.fromEntries(fields.map((name) => [name, race.right[name]]));
    return { challenge: number, right };
  }

  translate() {
    if (!this.challenge) return;
    const { number, fault, may_change: fields, given } = this.challenge;
    const text = (name, value) => setText(this.root.querySelector(name), value);
    text('h2', t('challenge_title', { number }));
    text('.goal', t(`challenge_${number}`));
    const what = fault ? t('challenge_fault', { fault: t(`fault_${fault}`) }) : t('challenge_calm');
    const change = fields.map((name) => t(name)).join(t('comma'));
    const cell = `${given.lock} · ${cellText(given)}.`;
    text('.given', [cell, what, t('challenge_change', { change })].join(' '));
    const outcome = this.root.querySelector('.outcome');
    setText(outcome, this.result ? t(`result_${this.result}`) : '');
    const tone = this.result === 'solved' ? 'good' : 'bad';
    outcome.className = `outcome ${this.result ? tone : ''}`;
  }

  /** What became of it, once its race is shown to the end. */
  update(result) {
    if (this.result === result) return;
    this.result = result;
    this.translate();
  }
}
