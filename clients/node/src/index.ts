/** Locks in Redis that exclude Redisson's `RLock`, and the kind `redisson` of the Rust library. */
export { HeldByOtherKindError, LockLostError, LockTimeoutError, NoAnswerError } from './errors.js';
export { Guard, type LossCause, type Owner, type Release, type TokenIssuer } from './guard.js';
export { Locks, type LockOptions } from './locks.js';
