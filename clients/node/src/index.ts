/** Locks in Redis that exclude Redisson's `RLock`, and the kind `redisson` of the Rust library. */
export { HeldByOtherKindError, LockLostError, LockTimeoutError, NoAnswerError } from './errors.js';
export { Guard, Owner, type LossCause, type Release } from './guard.js';
export { Locks, type LockOptions, type LocksOptions, type TokenIssuer } from './locks.js';
