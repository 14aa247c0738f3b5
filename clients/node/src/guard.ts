import { setTimeout as sleep } from 'node:timers/promises';
import { LockLostError, isUnanswered } from './errors.js';
import type { Locks } from './locks.js';
import { ABANDON, ACQUIRE, RELEASE, RENEW, beside, channelOf, wait } from './server.js';

/** How long the server remembers a re-entry or a release, and an abandoned attempt. */
const LATCH_MS = 10_000;
const ABANDON_MS = 60_000;
const WAKE_ONE = '0';
const ABSENT = -2;

/** How a release ended. */
export type Release = 'released' | 'held_by_other' | 'gone';

/** Why a lock is lost: not renewed in time, or taken away as the server says. */
export type LossCause = 'expired' | 'taken';

/** The owner of a lock, for re-entry. All its holds have one fencing token. */
export interface Owner {
  readonly text: string;
  readonly name: string;
  /** @internal */
  token?: Promise<bigint> | undefined;
}

/** Draws fencing tokens, which rise for ever, whatever happens to Redis. */
export interface TokenIssuer {
  next(name: string): Promise<bigint>;
}

/** A held lock. `await using` releases it. */
export class Guard implements AsyncDisposable {
  /** The fencing token, if one was asked for. */
  token: bigint | undefined;
  /** By `performance.now()`: until when the lock is valid, unless it is renewed. */
  validUntil = 0;
  readonly #lost = new AbortController();
  readonly #ended = new AbortController();
  #cause: LossCause | undefined;
  #release: Promise<Release> | undefined;

  /** @internal */
  constructor(
    private readonly locks: Locks,
    private readonly id: string,
    readonly owner: Owner,
    private readonly lease: number,
  ) {}

  /** Aborted with a `LockLostError` when the lock is lost. */
  get signal(): AbortSignal {
    return this.#lost.signal;
  }

  /** Reads the clock, so a process that was frozen knows at its first look. Final. Undefined after
   *  a release in time. */
  get lossCause(): LossCause | undefined {
    if (performance.now() >= this.validUntil && !this.#release) this.#lose('expired');
    return this.#cause;
  }

  /** Whether the lock is lost. Check it before each step that must not happen twice. */
  get isLost(): boolean {
    return this.lossCause !== undefined;
  }

  /** Releases this hold, once. The last hold of the owner frees the lock. */
  release(): Promise<Release> {
    this.#ended.abort();
    this.#release ??= this.locks.inBackground(this.#free());
    return this.#release;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.release();
  }

  /** @internal Asks the server once; the rest of the holder's lease in ms if the lock is busy. */
  async attempt(looks: number, signal: AbortSignal | undefined): Promise<number | null> {
    const { name, text } = this.owner;
    for (let looked = 0; looked < looks; looked += 1) {
      const left = await this.locks.server.send<number>(['PTTL', name], signal);
      if (left !== ABSENT) return left;
    }
    this.locks.stats.attempts += 1;
    this.#extend(performance.now());
    const args = [this.lease, text, Number(text !== this.id), LATCH_MS];
    try {
      const words = [2, name, this.#key('lock_latch'), ...args];
      const left = await this.locks.server.run<number | null>(ACQUIRE, words, signal);
      this.locks.stats.busy += Number(left !== null);
      return left;
    } catch (error) {
      if (signal?.aborted || isUnanswered(error)) void this.locks.inBackground(this.#abandon());
      throw error;
    }
  }

  /** @internal Renews at every third of the lease until the hold ends, and notices the end. */
  async watch(renews: boolean): Promise<void> {
    const { signal } = this.#ended;
    for (let pause = this.lease / 3; !this.isLost && !signal.aborted;) {
      const left = this.validUntil - performance.now();
      await sleep(Math.min(pause, left), undefined, { signal, ref: false }).catch(() => {});
      if (!renews || this.isLost || signal.aborted) continue;
      // The end of validity is noticed while the answer is awaited.
      const late = sleep(this.validUntil - performance.now(), 0, { ref: false });
      pause = await Promise.race([this.#renew(signal), late]);
    }
  }

  /** @internal Draws the owner's token, or waits for the draw of another hold, until the loss. */
  async drawToken(issuer: TokenIssuer, signal: AbortSignal | undefined): Promise<void> {
    const { owner } = this;
    owner.token ??= issuer.next(owner.name).catch((error: unknown) => {
      owner.token = undefined;
      throw error;
    });
    const end = AbortSignal.any([this.signal, ...(signal ? [signal] : [])]);
    this.token = await wait(owner.token, Infinity, end);
  }

  async #free(): Promise<Release> {
    const { places, server } = this.locks;
    const { name, text } = this.owner;
    const place = places.enter(name);
    const keys = [name, channelOf(name), this.#key('unlock_latch')];
    const words = [3, ...keys, WAKE_ONE, this.lease, text, LATCH_MS, 'PUBLISH'];
    const answer = await server.run<number>(RELEASE, words).finally(() => places.leave(place));
    // The quickest process would have it again and again: it looks before it asks.
    place.looks = Math.min(answer - 1 - Number(place.isLive), 2);
    if (answer >= 0) return 'released';
    return answer === -1 ? 'gone' : 'held_by_other';
  }

  /** Undoes an attempt without an answer, or keeps it from being carried out later. Tries for the
   *  time of the lease, and 60 s at most. */
  async #abandon(): Promise<void> {
    const { name, text } = this.owner;
    const keys = [name, channelOf(name), this.#key('lock_latch')];
    const args = [WAKE_ONE, text, Number(text !== this.id), ABANDON_MS, 'PUBLISH'];
    // By its text: a server that hangs now could not ask for it later.
    const words = ['EVAL', ABANDON.text, 3, ...keys, ...args];
    const undo = () => this.locks.server.send(words).then(() => false, isUnanswered);
    const end = performance.now() + Math.min(this.lease, ABANDON_MS);
    for (let pause = 50; (await undo()) && performance.now() < end;) {
      await sleep(pause);
      pause = Math.min(2 * pause, 1000);
    }
  }

  async #renew(signal: AbortSignal): Promise<number> {
    const sent = performance.now();
    try {
      const words = [1, this.owner.name, this.owner.text, this.lease];
      const [isRenewed] = await this.locks.server.run<number[]>(RENEW, words, signal);
      if (isRenewed === 0 && !signal.aborted) this.#lose('taken');
      if (!this.isLost) this.#extend(sent);
      return this.lease / 3;
    } catch {
      // Without an answer again after a thirtieth.
      return this.lease / 30;
    }
  }

  /** A key of this acquisition alone. */
  #key(kind: string): string {
    return `${beside(kind, this.owner.name)}:${this.id}`;
  }

  /** Counts from the sending of a granted request, with a margin for clocks. */
  #extend(sent: number): void {
    this.validUntil = sent + this.lease - (this.lease / 100 + 2);
  }

  #lose(cause: LossCause): void {
    this.#cause ??= cause;
    this.#lost.abort(new LockLostError(`the lock ${this.owner.name} is lost: ${this.#cause}`));
  }
}
