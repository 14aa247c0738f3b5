// The time that is shown: it plays, stops, steps, and is dragged.

/** How far the time shown may be behind a running race before it hurries: events are in batches. */
const SLACK = 10000;
/** How much faster it is for each second that it is further behind, and at most. */
const HASTE = 100;
const MOST_HASTE = 20;
/** The longest step of one frame: a page in the background does not jump. */
const MAX_FRAME_MS = 100;

class Player {
  constructor() {
    this.head = 0;
    this.speed = 1;
    this.isPlaying = true;
    this.follows = true;
  }

  restart() {
    this.head = 0;
    this.isPlaying = true;
    this.follows = true;
  }

  tick(model, milliseconds) {
    if (!this.isPlaying) return;
    const limit = model.known;
    const behind = Math.max(0, limit - this.head - SLACK) / 1e6;
    const isLive = this.follows && this.speed === 1 && !model.isOver;
    const haste = isLive ? Math.min(MOST_HASTE, 1 + HASTE * behind) : 1;
    const step = Math.min(milliseconds, MAX_FRAME_MS) * 1000 * this.speed * haste;
    this.head = Math.min(this.head + step, Math.max(limit, this.head));
    if (model.isOver && this.head >= limit) this.isPlaying = false;
  }

  toggle(model) {
    if (!this.isPlaying && model.isOver && this.head >= model.known) this.head = 0;
    this.isPlaying = !this.isPlaying;
    this.follows = false;
  }

  show(time) {
    this.isPlaying = false;
    this.follows = false;
    this.head = Math.max(0, time);
  }

  /** Shows the newest moment, and goes on from there. */
  latest(model) {
    this.head = model.known;
    this.isPlaying = !model.isOver;
    this.follows = true;
  }

  step(model) {
    this.show(Math.min(model.after(this.head), model.known));
  }

  back(model) {
    this.show(model.before(this.head));
  }
}
