// The faults of a replica at its name in the lane: a button there opens them. They are the same as
// those below the lane.

class RowFaults {
  /** `press` injects a fault: an action, and the number of its replica. */
  constructor(root, lane, press) {
    [this.root, this.lane, this.press] = [root, lane, press];
    this.rows = [];
  }

  /** Has a button in the row of each replica of the cell. */
  reset({ lock, replicas }) {
    const links = ['redis', 'database', ...(lock === 'zookeeper' ? ['zookeeper'] : [])];
    const ofLinks = links.map((link) => FAULTS.link.map((action) => `${action}-${link}`));
    const groups = [PROCESS_FAULTS, ...ofLinks];
    this.rows = Array.from({ length: replicas }, (_, index) => this.row(index + 1, groups));
    this.root.replaceChildren(...this.rows.flatMap(({ button, menu }) => [button, menu]));
  }

  row(replica, groups) {
    const button = element('button', `r${replica}`, 'row-name');
    const menu = element('div', '', 'row-menu');
    [button.type, button.disabled] = ['button', true];
    button.style.top = `${(replica - 1) * ROW}px`;
    menu.id = `faults-${this.lane}-${replica}`;
    menu.popover = 'auto';
    menu.setAttribute('role', 'group');
    button.setAttribute('popovertarget', menu.id);
    menu.append(...groups.map((actions) => {
      const group = element('div', '');
      group.append(...actions.map((action) => faultButton(action, () => {
        menu.togglePopover(false);
        this.press(action, replica);
      })));
      return group;
    }));
    menu.addEventListener('beforetoggle', () => placeMenu(menu, button));
    return { replica, button, menu };
  }

  translate() {
    for (const { replica, button, menu } of this.rows) {
      const name = t('row_faults', { replica: `r${replica}` });
      [button, menu].forEach((it) => it.setAttribute('aria-label', name));
    }
  }

  setEnabled(enabled) {
    for (const { button, menu } of this.rows) {
      if (!enabled) menu.togglePopover(false);
      [button, ...menu.querySelectorAll('button')].forEach((it) => { it.disabled = !enabled; });
    }
  }
}

/** Has a menu open below its button, and move with the page. */
function placeMenu(menu, button) {
  const { left, bottom } = button.getBoundingClientRect();
  menu.style.setProperty('--left', `${left + window.scrollX}px`);
  menu.style.setProperty('--top', `${bottom + window.scrollY}px`);
}
