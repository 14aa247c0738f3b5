// Draws a lane: a row for each replica, a bar for each request that is in the window.

const ROW = 62;
const HEAD_AT = 0.86;
/** The heights of the strip of the lease, and of the row of requests without an answer. */
const LEASE = 32;
const REST = 40;
const FONT = '11px system-ui, sans-serif';
/** How high a hold is drawn that only the server shows: lines need room. */
const SERVER_HOLD = 8;
/** How far a sign, and a token, reach beyond their bar. */
const [SIGN, TOKEN] = [8, 90];

let palette = {};

/** Reads the colours of the style, which change with the theme. */
function readPalette() {
  const style = getComputedStyle(document.documentElement);
  const names = ['ink', 'muted', 'line', 'ok', 'refused', 'unknown', 'wait', 'bad', 'shade'];
  names.push('fault', 'fault-shade', 'paper', 'lease');
  palette = Object.fromEntries(names.map((name) => [name, style.getPropertyValue(`--${name}`)]));
}

class LaneCanvas {
  constructor(canvas) {
    this.canvas = canvas;
    this.context = canvas.getContext('2d');
    [this.shades, this.bars, this.signs] = [new TileLayer(), new TileLayer(), new TileLayer()];
    this.layers = [this.shades, this.bars, this.signs];
    // To ask for the width at each picture would have the browser lay out the page each time.
    new ResizeObserver(() => { this.width = canvas.clientWidth; }).observe(canvas);
  }

  /** The rows: replicas, and requests whose replica is not known yet. */
  rows(lane) {
    const names = Array.from({ length: lane.cell.replicas }, (_, index) => `r${index + 1}`);
    return [...names, null];
  }

  resize(rows) {
    this.width ||= this.canvas.clientWidth;
    [this.height, this.scale] = [(rows - 1) * ROW + LEASE + REST, window.devicePixelRatio || 1];
    const [w, h] = [this.width, this.height].map((size) => Math.round(size * this.scale));
    if (this.canvas.width !== w || this.canvas.height !== h) {
      [this.canvas.width, this.canvas.height] = [w, h];
      const border = this.canvas.offsetHeight - this.canvas.clientHeight;
      this.canvas.style.height = `${this.height + border}px`;
    }
    this.context.setTransform(this.scale, 0, 0, this.scale, 0, 0);
  }

  draw(lane, head, span) {
    const rows = this.rows(lane);
    this.resize(rows.length);
    const [context, left] = [this.context, head - span * HEAD_AT];
    // What moves and the tiles move by whole pixels of the screen.
    const behind = Math.round((left / span) * this.width * this.scale);
    const distance = (time) => (time / span) * this.width;
    const x = (time) => distance(time) - behind / this.scale;
    const below = (rows.length - 1) * ROW;
    const y = (replica) => (
      replica === null ? below + LEASE : Math.max(0, rows.indexOf(replica)) * ROW);
    context.clearRect(0, 0, this.width, this.height);
    context.font = FONT;
    context.textBaseline = 'top';
    const box = (request) => this.box(lane, request, y);
    const overlaps = this.overlapsIn(lane, head, left);
    const unfinished = overlaps.filter((it) => shownFrom(it) > head);
    this.paintTiles(lane, { head, span, behind, distance, box });
    unfinished.forEach((one) => this.shadeOverlap(one, head, distance));
    this.drawGrid(left, span, x);
    this.drawLease(lane, { head, left, x, top: below });
    this.shades.show(context, behind);
    this.drawSpans(lane, head, x, y);
    this.bars.show(context, behind);
    for (const request of lane.underWayAt(head)) {
      this.drawRequest(context, request, { head, x, ...box(request) });
    }
    for (const [request, hold] of lane.serverHolds.begunAt(head)) {
      this.drawServerHold(hold, { head, x, ...box(request) });
    }
    this.signs.show(context, behind);
    unfinished.forEach((one) => this.markOverlap(context, one, { head, x, box }));
    this.drawMarks(lane, head, x, y);
    rows.forEach((replica) => this.nameRow(replica ?? t('on_the_way'), y(replica)));
    this.nameRow(serverLeaseText(lane, head), below);
    this.nameOverlaps(lane, overlaps, { x, y });
    context.fillStyle = palette.ink;
    context.fillRect(x(head), 0, 1.5, this.height);
  }

  /** Where the bar of a request is in its row. */
  box(lane, request, y) {
    const isOpen = request.end === null;
    // A request that was never answered has no replica either.
    const replica = isOpen ? null : request.replica;
    const slots = isOpen ? 8 : this.slots(lane, replica);
    const pitch = ((replica === null ? REST : ROW) - 20) / slots;
    const slot = isOpen ? request.n % slots : request.slot;
    const top = y(replica) + 17 + slot * pitch;
    return { top, height: Math.max(2, pitch - 1.5) };
  }

  slots(lane, replica) {
    return Math.max(4, lane.slots.get(replica)?.length ?? 4);
  }

  /** Draws on the tiles what has ended. They begin anew if it would be drawn in another way. */
  paintTiles(lane, { head, span, behind, distance, box }) {
    const slots = this.rows(lane).map((replica) => this.slots(lane, replica));
    const form = [span, this.width, this.height, this.scale, ...slots].join(' ');
    const isOther = this.lane !== lane || this.palette !== palette || this.form !== form;
    if (isOther || head < this.head) {
      [this.lane, this.palette, this.form] = [lane, palette, form];
      this.layers.forEach((layer) => layer.restart(this.height, this.scale));
      const { requests, seconds, overlaps } = lane.arrived;
      const ofEnd = (list) => new Backlog(list, (it) => it.end);
      const ofOverlaps = new Backlog(overlaps, shownFrom);
      this.backlogs = [ofEnd(requests), ofEnd(seconds), ofOverlaps];
    }
    this.head = head;
    this.layers.forEach((layer) => layer.forgetBefore(behind));
    const [requests, seconds, overlaps] = this.backlogs.map((one) => one.take(head));
    const how = { head: Infinity, x: distance };
    for (const one of requests) {
      const wide = one.token === undefined ? SIGN : TOKEN;
      this.bars.paint(distance(one.start) - SIGN, distance(one.end) + wide, (context) => {
        this.drawRequest(context, one, { ...how, ...box(one) });
      });
    }
    for (const one of seconds) {
      const at = distance(one.end);
      this.signs.paint(at - SIGN, at + SIGN, (context) => this.drawSecond(context, at, box(one)));
    }
    for (const one of overlaps) {
      this.shadeOverlap(one, Infinity, distance);
      this.signs.paint(distance(one.from), distance(one.until) + SIGN, (context) => {
        this.markOverlap(context, one, { ...how, box });
      });
    }
  }

  drawGrid(left, span, x) {
    const steps = [1e4, 2e4, 5e4, 1e5, 2e5, 5e5, 1e6, 2e6];
    const step = steps.find((one) => (one / span) * this.width > 70) ?? 2e6;
    const context = this.context;
    for (let time = Math.ceil(Math.max(left, 0) / step) * step; time < left + span; time += step) {
      context.fillStyle = palette.line;
      context.fillRect(x(time), 0, 1, this.height);
      context.fillStyle = palette.muted;
      const text = `${(time / 1e6).toFixed(step < 1e5 ? 2 : 1)} s`;
      context.fillText(text, x(time) + 3, this.height - 12);
    }
  }

  nameRow(name, top) {
    const context = this.context;
    context.fillStyle = palette.line;
    context.fillRect(0, top, this.width, 1);
    const wide = context.measureText(name).width + 8;
    context.fillStyle = palette.paper;
    context.fillRect(0, top + 1, wide, 14);
    context.fillStyle = palette.ink;
    context.fillText(name, 4, top + 3);
  }

  /** The lease of the lock: as high as what is left of the longest one. */
  drawLease(lane, { head, left, x, top }) {
    const context = this.context;
    const [base, most] = [top + LEASE - 1, LEASE - 17];
    const height = (ms) => (Math.max(0, ms) / lane.longestLease) * most;
    for (const one of lane.leasesIn(left, head)) {
      const [from, until] = [x(one.from), x(one.until)];
      context.fillStyle = one.state === 'silent' ? palette.unknown : palette.lease;
      if (one.state === 'left') {
        context.beginPath();
        context.moveTo(from, base);
        context.lineTo(from, base - height(one.left));
        context.lineTo(until, base - height(one.left - (one.until - one.from) / 1000));
        context.lineTo(until, base);
        context.fill();
      } else if (one.state === 'no_expiry') {
        context.fillRect(from, base - most, until - from, most);
      } else if (one.state === 'silent') {
        context.fillRect(from, base - 2, until - from, 2);
      } else if (one.state === 'not_recorded') {
        this.hatch(from, until, [base - most, base], palette.muted);
      }
    }
  }

  /** Thin lines in that part of the picture. */
  hatch(from, until, [top, base], colour) {
    const context = this.context;
    context.save();
    context.beginPath();
    context.rect(from, top, until - from, base - top);
    context.clip();
    [context.strokeStyle, context.lineWidth] = [colour, 1];
    context.beginPath();
    for (let at = Math.max(0, from) - (base - top); at < until; at += 7) {
      context.moveTo(at, base);
      context.lineTo(at + base - top, top);
    }
    context.stroke();
    context.restore();
  }

  drawSpans(lane, head, x, y) {
    const context = this.context;
    for (const one of lane.spans.filter((it) => it.from <= head)) {
      const [from, to] = [Math.max(0, x(one.from)), x(Math.min(one.to, head))];
      if (to < 0) continue;
      // What happens to Redis happens to all replicas.
      const [top, height] = one.replica ? [y(one.replica), ROW] : [0, this.height - REST];
      context.fillStyle = palette['fault-shade'];
      context.fillRect(from, top + 1, to - from, height - 1);
      context.fillStyle = palette.fault;
      context.fillRect(from, top + 1, 2, height - 1);
      const label = hasText(`span_${one.kind}`) ? t(`span_${one.kind}`) : t(`fault_${one.kind}`);
      const isWide = to - from > context.measureText(label).width + 34;
      if (isWide || one.to > head) context.fillText(label, from + 30, top + 3);
    }
  }

  /** Faults of all replicas, faults that failed, restarts, and what was healed. */
  drawMarks(lane, head, x, y) {
    const context = this.context;
    context.fillStyle = palette.fault;
    for (const one of lane.marks.filter((it) => it.t <= head && x(it.t) >= 0)) {
      const glyph = markGlyph(one);
      if (!one.replica) context.fillRect(x(one.t), 0, 2, this.height);
      if (!glyph) continue;
      const top = one.replica ? y(one.replica) : 0;
      context.fillRect(x(one.t), top + 1, 1, ROW - 1);
      context.fillText(glyph, x(one.t) + 3, top + ROW - 14);
    }
  }

  /** Waiting is an outline, holding is filled; what follows is a line. */
  drawRequest(context, request, { head, x, top, height }) {
    const colours = { o: palette.ok, f: palette.refused, u: palette.unknown };
    const colour = colours[request.sort] ?? palette.wait;
    const isKnown = request.end !== null;
    const end = Math.min(isKnown ? request.end : head, head);
    const from = Math.min(request.from ?? end, head);
    const until = Math.min(request.until ?? end, head);
    const tellsOfNoHold = isKnown && request.from === undefined;
    const wide = Math.max(1, x(from) - x(request.start) - 1);
    context.globalAlpha = 0.35;
    context.fillStyle = tellsOfNoHold ? colour : palette.wait;
    if (tellsOfNoHold || height < 5) context.fillRect(x(request.start), top, wide, height);
    context.globalAlpha = 1;
    context.strokeStyle = palette.wait;
    context.lineWidth = 1;
    if (!tellsOfNoHold && height >= 5) {
      context.strokeRect(x(request.start) + 0.5, top + 0.5, wide, height - 1);
    }
    context.fillStyle = colour;
    if (request.from !== undefined) {
      context.fillRect(x(from), top, Math.max(1.5, x(until) - x(from)), height);
      context.fillRect(x(until), top + height / 2 - 0.5, Math.max(0, x(end) - x(until)), 1);
    } else if (isKnown && request.end <= head) {
      context.fillRect(x(end) - 2, top, 3, height);
    }
    const shown = { from: x(from), until: x(until), top, height };
    if (request.token !== undefined && request.end <= head) this.drawToken(context, request, shown);
    if (request.lost && request.lostAt <= head) {
      // In a bar of any colour it needs a ground of its own.
      const at = x(request.lostAt);
      context.fillStyle = palette.paper;
      context.fillRect(at - 5, top - 1, 10, height + 2);
      this.write(context, '✕', [at - 4, top + height / 2 - 5.5], palette.bad);
    }
  }

  /** A hold that no answer reports, as far as the lease on the server shows it. */
  drawServerHold({ from, until }, { head, x, top, height }) {
    const [start, end] = [x(from), x(Math.min(until, head))];
    if (end < 0) return;
    const middle = Math.round(top + height / 2);
    const [above, below] = [middle - SERVER_HOLD / 2, middle + SERVER_HOLD / 2];
    this.hatch(start, end, [above, below], palette.lease);
    this.context.strokeStyle = palette.lease;
    this.context.strokeRect(start, above + 0.5, end - start, SERVER_HOLD - 1);
  }

  write(context, text, [x, y], colour, font = FONT) {
    [context.font, context.textBaseline, context.fillStyle] = [font, 'top', colour];
    context.fillText(text, x, y);
  }

  /** The token in its bar where it has room; one that the fence refused beside it. */
  drawToken(context, request, { from, until, top, height }) {
    const { token, highest } = request;
    const font = '9px system-ui, sans-serif';
    context.font = font;
    if (isStale(request)) {
      this.write(context, `${token} < ${highest}`, [until + 3, top - 1], palette.bad, font);
    } else if (height >= 8 && until - from > context.measureText(token).width + 3) {
      this.write(context, token, [from + 2, top + (height - 9) / 2], palette.paper, font);
    }
    context.font = FONT;
  }

  /** The sign of a user's second order. */
  drawSecond(context, x, { top, height }) {
    context.fillStyle = palette.bad;
    context.beginPath();
    const radius = Math.min(4, Math.max(1.5, height * 0.6));
    context.arc(x, top + height / 2, radius, 0, 2 * Math.PI);
    context.fill();
  }

  /** The overlaps in the window, the newest first. */
  overlapsIn(lane, head, left) {
    const seen = [];
    const end = firstAbove(lane.overlaps, head, (it) => it.from);
    for (let at = end - 1; at >= 0 && lane.overlaps[at].from > left - lane.longest; at -= 1) {
      if (lane.overlaps[at].until >= left) seen.push(lane.overlaps[at]);
    }
    return seen;
  }

  /** Shades the time in which some lock had two holders, once however many they are. */
  shadeOverlap({ from, until }, head, distance) {
    // Whole pixels: what is cleared in part would leave a seam.
    const start = Math.floor(distance(from) * this.scale) / this.scale;
    const end = Math.ceil(distance(Math.min(until, head)) * this.scale) / this.scale;
    const area = [start, 0, Math.max(0, end - start), this.height - REST];
    this.shades.paint(start, end, (context) => {
      context.clearRect(...area);
      context.fillStyle = palette.shade;
      context.fillRect(...area);
    });
  }

  /** Marks the part of both bars that overlaps, and joins them. */
  markOverlap(context, one, { head, x, box }) {
    const [from, until] = [x(one.from), x(Math.min(one.until, head))];
    const tops = [one.a, one.b].map((request) => {
      const { top, height } = box(request);
      const strip = Math.max(2, height * 0.45);
      context.fillStyle = palette.bad;
      context.fillRect(from, top + height - strip, Math.max(2, until - from), strip);
      return top + height / 2;
    });
    context.fillRect(from, Math.min(...tops), 1, Math.abs(tops[0] - tops[1]));
  }

  /** Names the newest overlaps, each in the row of its second holder. */
  nameOverlaps(lane, overlaps, { x, y }) {
    const context = this.context;
    const taken = new Set();
    for (const one of overlaps) {
      const row = y(one.b.replica);
      if (taken.has(row)) continue;
      const text = overlapText(lane, one);
      if (taken.has(text)) continue;
      taken.add(row).add(text);
      const length = context.measureText(text).width + 6;
      const at = Math.max(24, Math.min(x(one.from), this.width - length));
      context.fillStyle = palette.bad;
      context.fillRect(at, row + 2, length, 13);
      context.fillStyle = palette.paper;
      context.fillText(text, at + 3, row + 3);
    }
  }
}

/** What the server of the lock says of its lease at that time. */
function serverLeaseText(lane, time) {
  const { state, left = 0, user } = lane.leaseAt(time);
  const key = state === 'left' && user !== undefined ? 'left_user' : state;
  return t(`lease_at_${key}`, { left: (left / 1000).toFixed(1), user });
}

/** The sign of a mark; none for a begin, which has its shade, and for its witness. */
function markGlyph({ action, phase }) {
  if (phase === 'failed') return '!';
  if (phase !== 'healed') return '';
  return action === 'restart' ? '↻' : '✓';
}

/** From when on nothing of an overlap changes. */
function shownFrom({ a, b, until }) {
  return Math.max(a.end, b.end, until);
}

/** Which lock two held at once, and where. */
function overlapText(lane, one) {
  const places = `${one.a.replica} + ${one.b.replica}`;
  const key = lane.cell.scope === 'user' ? 'overlap_user' : 'overlap_voucher';
  return t(key, { user: one.a.user, places });
}
