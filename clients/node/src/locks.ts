import { randomUUID } from 'node:crypto';
import { LockTimeoutError, isUnanswered } from './errors.js';
import { Guard, type Owner, type TokenIssuer } from './guard.js';
import { Places, type Place } from './places.js';
import { Server, wait, type Client } from './server.js';

const MAX_MESSAGE_WAIT_MS = 1000;
const LEASE_END_MARGIN_MS = 2;
const MAX_MS = 86_400_000;
/** Times are in ms. */
export interface LockOptions {
  /** How long to wait for the holder: 0 by default. */
  wait?: number;
  /** How long the server keeps the lock of a holder that is silent: 30,000 by default. */
  lease?: number;
  /** Whether the lease is renewed at every third of it: true by default. */
  renew?: boolean;
  /** Enters again: the owner of a guard of the same lock. */
  owner?: Owner;
  /** Draws a fencing token: without it there is none. */
  tokenIssuer?: TokenIssuer;
  /** Ends the acquisition and leaves nothing: what the server grants later is released. */
  signal?: AbortSignal;
}

/** Locks of one Redis server, or of the master that Sentinel names. The client is connected. */
export class Locks {
  /** Counts since the start. */
  readonly stats = { attempts: 0, busy: 0, handOffs: 0 };
  /** @internal */
  readonly server: Server;
  /** @internal */
  readonly places: Places;
  readonly #process = randomUUID();
  #guards = 0;
  readonly #background = new Set<Promise<unknown>>();

  constructor(client: Client) {
    this.server = new Server(client);
    this.places = new Places(client);
  }

  /** Takes the lock, or rejects with `LockTimeoutError` if it is held for all of the wait. */
  async lock(name: string, options: LockOptions = {}): Promise<Guard> {
    const { wait: most = 0, lease = 30_000, renew = true, owner, tokenIssuer, signal } = options;
    const isInRange = lease >= 10 && most >= 0 && Math.max(lease, most) <= MAX_MS;
    if (!isInRange) throw new RangeError('lease: 10 to 86400000 ms; wait: 0 to 86400000 ms');
    const length = Buffer.byteLength(name);
    if (length < 1 || length > 512) throw new RangeError('name: must have 1 to 512 bytes');
    const isOwn = owner === undefined || owner.name === name;
    if (!isOwn) throw new RangeError('owner: must be that of a hold of the same lock');
    signal?.throwIfAborted();
    const guard = await this.#acquire(name, performance.now() + most, { ...options, lease });
    void guard.watch(renew);
    try {
      if (tokenIssuer !== undefined) await guard.drawToken(tokenIssuer, signal);
      // A token counts only if it came within the validity time.
      if (guard.isLost) throw guard.signal.reason;
    } catch (error) {
      await guard.release().catch(() => {});
      throw error;
    }
    return guard;
  }

  /** Takes the lock if it is free; else resolves to undefined. */
  async tryLock(name: string, options: LockOptions = {}): Promise<Guard | undefined> {
    return this.lock(name, { ...options, wait: 0 }).catch((error: unknown) => {
      if (error instanceof LockTimeoutError) return undefined;
      throw error;
    });
  }

  /** Runs work under the lock. Rejects with `LockLostError` if it was lost before the end. */
  async using<T>(name: string, options: LockOptions, work: (guard: Guard) => Promise<T> | T) {
    await using guard = await this.lock(name, options);
    const outcome = await work(guard);
    if (guard.isLost) throw guard.signal.reason;
    return outcome;
  }

  /** Waits until no release and no abandoned attempt is under way. */
  async flush(): Promise<void> {
    while (this.#background.size > 0) await Promise.allSettled(this.#background);
  }

  /** Ends the subscriptions. Locks that are still held end with their leases. */
  async close(): Promise<void> {
    await this.flush();
    this.places.close();
  }

  /** @internal */
  inBackground<T>(work: Promise<T>): Promise<T> {
    const done = () => void this.#background.delete(work);
    this.#background.add(work);
    work.then(done, done);
    return work;
  }

  /** Waits for its turn in this process, and then for the holder. */
  async #acquire(name: string, deadline: number, options: LockOptions): Promise<Guard> {
    if (options.owner !== undefined) {
      // It does not wait: it holds the lock, or the script refuses it.
      const guard = this.#newGuard(name, options);
      await guard.attempt(0, options.signal);
      return guard;
    }
    const place = this.places.enter(name);
    const entering = this.#contend(place, deadline, options);
    place.turn = Promise.allSettled([place.turn, entering]).then(() => true);
    return entering.finally(() => this.places.leave(place));
  }

  async #contend(place: Place, deadline: number, options: LockOptions): Promise<Guard> {
    const { name, turn } = place;
    const { signal } = options;
    if (!(await wait(turn, deadline - performance.now(), signal))) throw timedOut(name);
    for (let hasWaited = false; ; hasWaited = true) {
      const woken = new Promise<true>((resolve) => (place.wake = resolve));
      const { looks } = place;
      place.looks = 0;
      const guard = this.#newGuard(name, options);
      // A waiter outlives a short outage; a newcomer gets the error at once. It waits for its
      // subscription or for a second: each attempt leaves one that undoes it.
      const left = await guard.attempt(looks, signal).catch((error: unknown) => {
        const outlives = hasWaited && !signal?.aborted && performance.now() < deadline;
        if (!outlives || !isUnanswered(error)) throw error;
        return -1;
      });
      if (left === null) {
        this.stats.handOffs += Number(hasWaited);
        return guard;
      }
      const remaining = deadline - performance.now();
      if (remaining <= 0) throw timedOut(name);
      this.places.listen(place);
      const pause = left < 0 ? MAX_MESSAGE_WAIT_MS : left + LEASE_END_MARGIN_MS;
      const bounded = Math.min(pause, remaining, MAX_MESSAGE_WAIT_MS);
      const isWoken = await wait(woken, bounded, signal);
      if (!isWoken && bounded === remaining) throw timedOut(name);
    }
  }

  #newGuard(name: string, { owner, lease = 30_000 }: LockOptions): Guard {
    const id = `${this.#process}:${++this.#guards}`;
    return new Guard(this, id, owner ?? { text: id, name }, Math.round(lease));
  }
}

function timedOut(name: string): LockTimeoutError {
  return new LockTimeoutError(`${name} is held by another owner`);
}
