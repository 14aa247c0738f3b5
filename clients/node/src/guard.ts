import { LockLostError } from './errors.js';
import type { Locks } from './locks.js';
import { RENEW } from './server.js';

/** How a release ended. */
export type Release = 'released' | 'held_by_other' | 'gone';

/** Why a lock is lost: not renewed in time, or taken away as the server says. */
export type LossCause = 'expired' | 'taken';

/** The owner of a lock, for re-entry. All its holds have one fencing token. */
export class Owner {
  /** @internal */
  token: Promise<bigint> | undefined;

  constructor(
    readonly text: string,
    readonly name: string,
  ) {}
}

/** A held lock. `await using` releases it. */
export class Guard implements AsyncDisposable {
  /** The fencing token, if one was asked for. */
  token: bigint | undefined;
  /** By `performance.now()`: until when the lock is valid, unless it is renewed. */
  validUntil = 0;
  readonly #lost = new AbortController();
  #cause: LossCause | undefined;
  #timer: NodeJS.Timeout | undefined;
  #isReleased = false;
  #release: Promise<Release> | undefined;

  /** @internal */
  constructor(
    private readonly locks: Locks,
    readonly owner: Owner,
    readonly request: string,
    readonly lease: number,
  ) {}

  /** Aborted with a `LockLostError` when the lock is lost. */
  get signal(): AbortSignal {
    return this.#lost.signal;
  }

  /** Reads the clock, so a process that was frozen knows at its first look. Final. */
  get lossCause(): LossCause | undefined {
    if (this.#cause === undefined && performance.now() >= this.validUntil) this.#lose('expired');
    return this.#cause;
  }

  /** Whether the lock is lost. Check it before each step that must not happen twice. */
  get isLost(): boolean {
    return this.lossCause !== undefined;
  }

  /** Releases this hold, once. The last hold of the owner frees the lock. */
  release(): Promise<Release> {
    this.#isReleased = true;
    clearTimeout(this.#timer);
    this.#release ??= this.locks.releaseHold(this);
    return this.#release;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.release();
  }

  /** @internal Counts from the sending of a granted request, with a margin for clocks. */
  extend(sent: number): void {
    this.validUntil = sent + this.lease - (this.lease / 100 + 2);
  }

  /** @internal Renews at every third of the lease until the hold ends, and notices the end. */
  watch(renewAt: number | undefined): void {
    if (this.#isReleased || this.isLost) return;
    const next = Math.min(this.validUntil, renewAt ?? Infinity);
    this.#timer = setTimeout(() => {
      if (this.isLost) return;
      if (renewAt === undefined || performance.now() < renewAt) this.watch(renewAt);
      else void this.#renew();
    }, next - performance.now());
    this.#timer.unref();
  }

  async #renew(): Promise<void> {
    const sent = performance.now();
    let renewAt = sent + this.lease / 3;
    // The end of validity is noticed while the answer is awaited.
    this.watch(undefined);
    const awaited = this.#timer;
    try {
      const args = [this.owner.text, this.lease];
      const [isRenewed] = await this.locks.server.call<number[]>(RENEW, [this.owner.name], args);
      if (this.#isReleased || this.isLost) return;
      if (isRenewed === 1) this.extend(sent);
      else this.#lose('taken');
    } catch {
      // Without an answer again after a thirtieth.
      renewAt = performance.now() + this.lease / 30;
    }
    clearTimeout(awaited);
    this.watch(renewAt);
  }

  #lose(cause: LossCause): void {
    this.#cause = cause;
    this.#lost.abort(new LockLostError(`the lock ${this.owner.name} is lost: ${cause}`));
  }
}
