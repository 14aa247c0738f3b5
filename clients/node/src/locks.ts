import { randomUUID } from 'node:crypto';
import { LockTimeoutError, isUnanswered } from './errors.js';
import { Guard, Owner, type Release } from './guard.js';
import { ABANDON, ACQUIRE, RELEASE, Server, prefixed, wait, type Client } from './server.js';
import { Signals, type Channel } from './signals.js';

const MAX_MESSAGE_WAIT_MS = 1000;
const LEASE_END_MARGIN_MS = 2;
const MAX_LEASE_MS = 86_400_000;
/** How long the server remembers a re-entry or a release, and an abandoned attempt. */
const LATCH_MS = 10_000;
const ABANDON_MS = 60_000;
const GIVE_WAY_MS = 250;
const WAKE_ONE = '0';
const ABSENT = -2;

/** Draws fencing tokens, which rise for ever, whatever happens to Redis. */
export interface TokenIssuer {
  next(name: string): Promise<bigint>;
}

export interface LocksOptions {
  /** For `fenced`. */
  tokenIssuer?: TokenIssuer;
  /** How long the server may take to answer, in ms: 1000 by default. */
  responseTimeout?: number;
}

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
  /** Asks for a fencing token. */
  fenced?: boolean;
  /** Ends the acquisition and leaves nothing: what the server grants later is released. */
  signal?: AbortSignal;
}

interface Terms {
  deadline: number;
  lease: number;
  owner: Owner | undefined;
  signal: AbortSignal | undefined;
}

/** Locks of one Redis server, or of the master that Sentinel names. The client is connected. */
export class Locks {
  /** Counts since the start. */
  readonly stats = { attempts: 0, busy: 0, handOffs: 0 };
  /** @internal */
  readonly server: Server;
  readonly #tokenIssuer: TokenIssuer | undefined;
  readonly #signals: Signals;
  readonly #process = randomUUID();
  #owners = 0;
  /** The turns of each name in this process, in the order of arrival. */
  readonly #queues = new Map<string, Set<() => void>>();
  readonly #giveWay = new Map<string, { looks: number; until: number }>();
  readonly #background = new Set<Promise<unknown>>();

  constructor(client: Client, options: LocksOptions = {}) {
    this.server = new Server(client, options.responseTimeout ?? 1000);
    this.#tokenIssuer = options.tokenIssuer;
    this.#signals = new Signals(client);
  }

  /** Takes the lock, or rejects with `LockTimeoutError` if it is held for all of the wait. */
  async lock(name: string, options: LockOptions = {}): Promise<Guard> {
    const { wait: most = 0, lease = 30_000, renew = true, owner, fenced = false, signal } = options;
    const length = Buffer.byteLength(name);
    if (length < 1 || length > 512) throw new RangeError('name: must have 1 to 512 bytes');
    if (!(lease >= 10 && lease <= MAX_LEASE_MS && most >= 0 && most <= MAX_LEASE_MS)) {
      throw new RangeError('lease: must be 10 to 86400000 ms; wait: 0 to 86400000 ms');
    }
    if (owner !== undefined && owner.name !== name) {
      throw new RangeError('owner: must be that of a hold of the same lock');
    }
    const issuer = this.#tokenIssuer;
    if (fenced && issuer === undefined) throw new RangeError('fenced: needs a token issuer');
    signal?.throwIfAborted();

    const terms = { deadline: performance.now() + most, lease: Math.round(lease), owner, signal };
    const leave = owner === undefined ? await this.#enterQueue(name, terms) : () => {};
    let guard: Guard;
    try {
      guard = await this.#enter(name, terms);
    } finally {
      leave();
    }
    guard.watch(renew ? performance.now() + lease / 3 : undefined);
    try {
      if (fenced && issuer !== undefined) await this.#drawToken(guard, issuer, signal);
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
    try {
      return await this.lock(name, { ...options, wait: 0 });
    } catch (error) {
      if (error instanceof LockTimeoutError) return undefined;
      throw error;
    }
  }

  /** Runs work under the lock. Rejects with `LockLostError` if it was lost before the end. */
  async using<T>(
    name: string,
    options: LockOptions,
    work: (guard: Guard) => Promise<T> | T,
  ): Promise<T> {
    const guard = await this.lock(name, options);
    try {
      const outcome = await work(guard);
      if (guard.isLost) throw guard.signal.reason;
      return outcome;
    } finally {
      await guard.release();
    }
  }

  /** Waits until no release and no abandoned attempt is under way. */
  async flush(): Promise<void> {
    while (this.#background.size > 0) await Promise.allSettled(this.#background);
  }

  /** Ends the subscriptions. Locks that are still held end with their leases. */
  async close(): Promise<void> {
    await this.flush();
    await this.#signals.close();
  }

  /** @internal */
  releaseHold(guard: Guard): Promise<Release> {
    return this.#inBackground(this.#release(guard));
  }

  async #enterQueue(name: string, terms: Terms): Promise<() => void> {
    const leave = () => {
      const [next] = this.#queues.get(name) ?? [];
      if (next === undefined) this.#queues.delete(name);
      else next();
    };
    const queue = this.#queues.get(name);
    if (queue === undefined) {
      this.#queues.set(name, new Set());
      return leave;
    }
    let turn = () => {};
    let isGiven = false;
    const left = Math.max(0, terms.deadline - performance.now());
    const waiting = wait(left, terms.signal, (wake) => {
      turn = () => {
        queue.delete(turn);
        isGiven = true;
        wake();
      };
      queue.add(turn);
    });
    let isEntered = false;
    try {
      isEntered = await waiting;
    } finally {
      queue.delete(turn);
      // The turn may be given between the end of the wait and here. It is passed on.
      if (isGiven && !isEntered) leave();
    }
    if (isEntered) return leave;
    throw new LockTimeoutError(`${name} is held by another owner`);
  }

  async #enter(name: string, terms: Terms): Promise<Guard> {
    const channelName = prefixed('redisson_lock__channel', name);
    const isKnown = terms.owner === undefined && this.#signals.channels.has(channelName);
    let channel: Channel | undefined = isKnown ? this.#signals.enter(channelName) : undefined;
    try {
      for (let hasWaited = false; ; hasWaited = true) {
        if (channel !== undefined) channel.isSignalled = false;
        const owner = terms.owner ?? new Owner(`${this.#process}:${++this.#owners}`, name);
        const guard = new Guard(this, owner, randomUUID(), terms.lease);
        let left: number | null;
        try {
          left = await this.#attempt(guard, terms);
        } catch (error) {
          // A waiter outlives a short outage; a newcomer gets the error at once.
          const outlives = hasWaited && terms.owner === undefined && !terms.signal?.aborted;
          if (!outlives || !isUnanswered(error) || performance.now() >= terms.deadline) throw error;
          left = 100;
        }
        if (left === null) {
          this.stats.handOffs += Number(hasWaited);
          return guard;
        }
        if (performance.now() >= terms.deadline) {
          throw new LockTimeoutError(`${name} is held by another owner`);
        }
        channel ??= this.#signals.enter(channelName);
        await this.#awaitMessage(channel, left, terms, name);
      }
    } finally {
      if (channel !== undefined) this.#signals.leave(channel);
    }
  }

  /** Waits for a message, for the end of the holder's lease, or for a second. */
  async #awaitMessage(channel: Channel, left: number, terms: Terms, name: string): Promise<void> {
    const remaining = terms.deadline - performance.now();
    const known = left < 0 ? MAX_MESSAGE_WAIT_MS : left + LEASE_END_MARGIN_MS;
    const pause = Math.min(MAX_MESSAGE_WAIT_MS, known);
    if (channel.isSignalled) return;
    const isWoken = await wait(Math.min(pause, remaining), terms.signal, (wake) => {
      channel.wake = wake;
    });
    if (!isWoken && pause >= remaining) {
      throw new LockTimeoutError(`${name} is held by another owner`);
    }
  }

  /** Asks the server once; the rest of the holder's lease in ms if the lock is busy. */
  async #attempt(guard: Guard, terms: Terms): Promise<number | null> {
    const { name } = guard.owner;
    if (terms.owner === undefined && performance.now() < terms.deadline) {
      // The quickest process would have it again and again: it looks before it asks.
      for (let looks = this.#takeLooks(name); looks > 0; looks -= 1) {
        const left = await this.server.send<number>('PTTL', name);
        if (left !== ABSENT) return left;
      }
    }
    terms.signal?.throwIfAborted();
    this.stats.attempts += 1;
    const left = await this.#attended(guard, terms);
    this.stats.busy += Number(left !== null);
    return left;
  }

  /** An acquisition whose caller may go away: then what it brings is given back. */
  #attended(guard: Guard, { owner, signal }: Terms): Promise<number | null> {
    return new Promise((resolve, reject) => {
      let isGone = false;
      const abort = () => {
        isGone = true;
        reject(signal?.reason);
      };
      signal?.addEventListener('abort', abort, { once: true });
      const acquire = async () => {
        try {
          const left = await this.#acquire(guard, owner !== undefined);
          signal?.removeEventListener('abort', abort);
          resolve(left);
          // No release: one without an answer would be abandoned too, and both count down.
          if (isGone && left === null) await this.#abandon(guard, owner !== undefined);
        } catch (error) {
          signal?.removeEventListener('abort', abort);
          reject(error);
          if (isUnanswered(error)) await this.#abandon(guard, owner !== undefined);
        }
      };
      void this.#inBackground(acquire());
    });
  }

  async #acquire(guard: Guard, reenters: boolean): Promise<number | null> {
    const args = [guard.lease, guard.owner.text, Number(reenters), LATCH_MS];
    const keys = [guard.owner.name, acquireLatch(guard)];
    const sent = performance.now();
    const left = await this.server.call<number | null>(ACQUIRE, keys, args);
    guard.extend(sent);
    return left;
  }

  async #release(guard: Guard): Promise<Release> {
    const { name, text } = guard.owner;
    const channelName = prefixed('redisson_lock__channel', name);
    const latch = `${prefixed('redisson_unlock_latch', name)}:${guard.request}`;
    const args = [WAKE_ONE, guard.lease, text, LATCH_MS, 'PUBLISH'];
    const answer = await this.server.call<number>(RELEASE, [name, channelName, latch], args);
    const isHeard = this.#signals.channels.get(channelName)?.isLive ?? false;
    const others = answer - 1 - Number(isHeard);
    if (others > 0) {
      if (this.#giveWay.size > 1000) this.#giveWay.clear();
      const until = performance.now() + GIVE_WAY_MS;
      this.#giveWay.set(name, { looks: Math.min(others, 2), until });
    }
    if (answer >= 0) return 'released';
    return answer === -1 ? 'gone' : 'held_by_other';
  }

  /** Undoes an attempt without an answer, or keeps it from being carried out later. */
  async #abandon(guard: Guard, reenters: boolean): Promise<void> {
    const { name, text } = guard.owner;
    const keys = [name, prefixed('redisson_lock__channel', name), acquireLatch(guard)];
    const args = [WAKE_ONE, text, String(Number(reenters)), String(ABANDON_MS), 'PUBLISH'];
    const end = performance.now() + guard.lease;
    for (let pause = 50; performance.now() < end; pause = Math.min(2 * pause, 1000)) {
      try {
        // By its text: a server that hangs now could not ask for it later.
        await this.server.send('EVAL', ABANDON.text, String(keys.length), ...keys, ...args);
        return;
      } catch (error) {
        if (!isUnanswered(error)) return;
        await wait(pause, undefined, () => {});
      }
    }
  }

  async #drawToken(
    guard: Guard,
    issuer: TokenIssuer,
    signal: AbortSignal | undefined,
  ): Promise<void> {
    const { owner } = guard;
    try {
      owner.token ??= issuer.next(owner.name);
      guard.token = await owner.token;
      signal?.throwIfAborted();
    } catch (error) {
      owner.token = guard.token === undefined ? undefined : owner.token;
      throw error;
    }
  }

  #takeLooks(name: string): number {
    const found = this.#giveWay.get(name);
    this.#giveWay.delete(name);
    return found !== undefined && performance.now() <= found.until ? found.looks : 0;
  }

  #inBackground<T>(work: Promise<T>): Promise<T> {
    this.#background.add(work);
    const done = () => void this.#background.delete(work);
    work.then(done, done);
    return work;
  }
}

function acquireLatch(guard: Guard): string {
  return `${prefixed('redisson_lock_latch', guard.owner.name)}:${guard.request}`;
}
