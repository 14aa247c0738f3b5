// Rungs of the ladder: the lock that breaks in the left lane, its repair in the right one, with the
// rung's own load and fault.

const RUNGS = JSON.parse(document.getElementById('rungs-data').textContent);

class RungPanel {
  constructor(root, form) {
    [this.root, this.form] = [root, form];
    this.rung = null;
  }

  /** Shows a rung, or none. Only the seed of a rung can be chosen. */
  show(slug) {
    this.rung = RUNGS.find((it) => it.slug === slug) ?? null;
    this.root.hidden = !this.rung;
    this.form.querySelectorAll('.bet').forEach((bet) => {
      bet.querySelector('[value=breaks]').hidden = !this.rung;
      if (!this.rung && bet.value === 'breaks') bet.value = '';
    });
    if (this.rung) {
      const fields = this.form.querySelectorAll('[name]:not([name=seed])');
      fields.forEach((field) => { field.disabled = true; });
    }
    this.translate();
  }

  /** What is sent of a race that the form describes. */
  setup({ seed }) {
    return { rung: this.rung.slug, seed };
  }

  /** The name of the fault, or of the load where that is what the lock breaks under. */
  faultName() {
    const { slug, fault } = this.rung;
    return t(fault ? `fault_${fault}` : `rung_load_${slug}`);
  }

  translate() {
    const start = this.rung ? t('start_rung', { fault: this.faultName() }) : t('start');
    setText(this.form.querySelector('#start'), start);
    if (!this.rung) return;
    const { slug, number, command, next } = this.rung;
    const text = (name, value) => setText(this.root.querySelector(name), value);
    text('h2', t('rung_title', { number, rung: slug }));
    text('.goal', t(`rung_${slug}`));
    text('.fault', t('rung_fault', { fault: t(`rung_fault_${slug}`) }));
    text('code', command);
    const link = this.root.querySelector('.next');
    link.hidden = !next;
    link.href = `#rung=${next}`;
    setText(link, t('rung_next', { rung: next }));
  }
}
