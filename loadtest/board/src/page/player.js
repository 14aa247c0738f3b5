// The time that is shown: it plays, stops, steps, and is dragged.

/** How far the shown time stays behind a race that runs: events come in batches. */
const LAG = 50000;
/** How far it may fall behind, as after slow frames, before it hurries. */
const SLACK = 150000;
const MOST_HASTE = 4;
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

  /** The last moment that may be shown. */
  limit(model) {
    return model.isOver ? model.known : Math.max(0, model.known - LAG);
  }

  tick(model, milliseconds) {
    if (!this.isPlaying) return;
    const limit = this.limit(model);
    const behind = Math.max(0, limit - this.head - SLACK) / 1e6;
    const isLive = this.follows && this.speed === 1 && !model.isOver;
    const haste = isLive ? Math.min(MOST_HASTE, 1 + 2 * behind) : 1;
    const step = Math.min(milliseconds, MAX_FRAME_MS) * 1000 * this.speed * haste;
    this.head = Math.min(this.head + step, Math.max(limit, this.head));
    if (model.isOver && this.head >= limit) this.isPlaying = false;
  }

  toggle(model) {
    if (!this.isPlaying && model.isOver && this.head >= this.limit(model)) this.head = 0;
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
    this.head = this.limit(model);
    this.isPlaying = !model.isOver;
    this.follows = true;
  }

  step(model) {
    this.show(Math.min(model.after(this.head), this.limit(model)));
  }

  back(model) {
    this.show(model.before(this.head));
  }
}
