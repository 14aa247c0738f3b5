import { ErrorReply } from '@redis/client';

/** Another owner held the lock until the wait was over. */
export class LockTimeoutError extends Error {
  override name = 'LockTimeoutError';
}

/** The lock ended without a release. Its owner cannot rely on it or enter it again. */
export class LockLostError extends Error {
  override name = 'LockLostError';
}

/** The key is no lock of the kind `redisson`. */
export class HeldByOtherKindError extends Error {
  override name = 'HeldByOtherKindError';
}

/** Redis did not answer in time. */
export class NoAnswerError extends Error {
  override name = 'NoAnswerError';
}

/** Whether the server may have acted: it did not answer with an error. */
export function isUnanswered(error: unknown): boolean {
  const answers = [ErrorReply, LockLostError, HeldByOtherKindError];
  return !answers.some((answer) => error instanceof answer);
}

/** Throws what an error of a script means; the error itself if it is none of a lock. */
export function throwScriptError(cause: unknown): never {
  const message = cause instanceof ErrorReply ? cause.message : '';
  if (message.startsWith('LOST')) throw new LockLostError(message, { cause });
  if (message.includes('WRONGTYPE')) throw new HeldByOtherKindError(message, { cause });
  throw cause;
}
