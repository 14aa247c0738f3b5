// What no longer changes in a lane is drawn once. Each picture only moves it.

/** The width of a tile in pixels of the screen. */
const TILE = 256;

/** A picture as wide as the race is long, of which only the tiles in sight are kept. */
class TileLayer {
  /** Begins anew, with tiles of that height. */
  restart(height, scale) {
    [this.tiles, this.height, this.scale] = [new Map(), height, scale];
    this.first = -Infinity;
  }

  tile(index) {
    let context = this.tiles.get(index);
    if (!context) {
      const canvas = document.createElement('canvas');
      [canvas.width, canvas.height] = [TILE, Math.round(this.height * this.scale)];
      context = canvas.getContext('2d');
      context.setTransform(this.scale, 0, 0, this.scale, -index * TILE, 0);
      this.tiles.set(index, context);
    }
    return context;
  }

  /** Draws what lies between these distances from the begin of the race. */
  paint(from, to, draw) {
    const index = (distance) => Math.floor((distance * this.scale) / TILE);
    for (let at = Math.max(index(from), this.first); at <= index(to); at += 1) draw(this.tile(at));
  }

  /** Deletes what lies before that distance, in pixels of the screen. */
  forgetBefore(left) {
    this.first = Math.floor(left / TILE);
    for (const index of this.tiles.keys()) {
      if (index < this.first) this.tiles.delete(index);
    }
  }

  /** Shows the tiles, the begin of the race that many pixels of the screen to the left. */
  show(context, left) {
    context.save();
    context.setTransform(1, 0, 0, 1, 0, 0);
    for (const [index, { canvas }] of this.tiles) context.drawImage(canvas, index * TILE - left, 0);
    context.restore();
  }
}

/** The elements of a list that only grows, each given once when it is due. */
class Backlog {
  constructor(list, due) {
    [this.list, this.due] = [list, due];
    [this.seen, this.waiting] = [0, []];
  }

  take(time) {
    for (; this.seen < this.list.length; this.seen += 1) {
      insertSorted(this.waiting, this.list[this.seen], this.due);
    }
    return this.waiting.splice(0, firstAbove(this.waiting, time, this.due));
  }
}
