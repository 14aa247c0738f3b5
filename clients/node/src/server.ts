import { createHash } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { ErrorReply, type RedisClientType } from '@redis/client';
import { NoAnswerError, isUnanswered, throwScriptError } from './errors.js';

/** How long the server may take to answer. */
const RESPONSE_TIMEOUT_MS = 1000;

/** A client of node-redis with any modules, and of any protocol. */
// eslint-disable-next-line @typescript-eslint/no-explicit-any
export type Client = RedisClientType<any, any, any, any, any>;

function script(name: string) {
  const text = readFileSync(new URL(`../lua/${name}.lua`, import.meta.url), 'utf8');
  return { text, digest: createHash('sha1').update(text).digest('hex') };
}

type Script = ReturnType<typeof script>;
export const ACQUIRE = script('redisson_acquire');
export const RELEASE = script('redisson_release');
export const ABANDON = script('redisson_abandon');
export const RENEW = script('renew');

/** A key beside the lock's, in the same slot of a cluster, as Redisson names it. */
export function beside(kind: string, name: string): string {
  return name.includes('{') ? `redisson_${kind}:${name}` : `redisson_${kind}:{${name}}`;
}

/** Where a release tells waiters. */
export const channelOf = (name: string): string => beside('lock__channel', name);

/** Sends commands, each with a bound on the time of its answer. An abort ends the wait for it. */
export class Server {
  constructor(readonly client: Client) {}

  async send<T>(words: (string | number)[], signal?: AbortSignal): Promise<T> {
    const controller = new AbortController();
    const asking = this.client.sendCommand(words.map(String), { abortSignal: controller.signal });
    try {
      const answer = await wait<unknown>(asking, RESPONSE_TIMEOUT_MS, signal);
      if (answer !== undefined) return answer as T;
      throw new NoAnswerError(`Redis did not answer within ${RESPONSE_TIMEOUT_MS} ms`);
    } finally {
      // What is not sent yet need not be sent.
      controller.abort();
    }
  }

  /** Calls a script by its digest; a server that does not know it gets its text. */
  async run<T>(called: Script, words: (string | number)[], signal?: AbortSignal): Promise<T> {
    const once = (): Promise<T> =>
      this.send<T>(['EVALSHA', called.digest, ...words], signal).catch((error: unknown) => {
        if (!(error instanceof ErrorReply && error.message.startsWith('NOSCRIPT'))) throw error;
        return this.send<T>(['EVAL', called.text, ...words], signal);
      });
    // A lost answer costs one repetition, which is safe: the scripts count it once.
    const repeated = once().catch((error: unknown) => {
      if (!isUnanswered(error) || signal?.aborted) throw error;
      return once();
    });
    return repeated.catch(throwScriptError);
  }
}

/** What a promise brings, or undefined when the time is over. An abort rejects. */
export async function wait<T>(what: Promise<T>, ms: number, signal?: AbortSignal) {
  let timer: NodeJS.Timeout | undefined;
  let abort = (): void => {};
  const end = new Promise<undefined>((resolve, reject) => {
    if (ms < Infinity) timer = setTimeout(resolve, ms, undefined);
    abort = () => reject(signal?.reason);
    signal?.addEventListener('abort', abort);
    if (signal?.aborted) abort();
  });
  try {
    return await Promise.race([what, end]);
  } finally {
    clearTimeout(timer);
    signal?.removeEventListener('abort', abort);
  }
}
