import { createHash } from 'node:crypto';
import { readFileSync } from 'node:fs';
import type { RedisClientType } from '@redis/client';
import { NoAnswerError, isUnanswered, scriptError } from './errors.js';

/** A client of node-redis with any modules, and of any protocol. */
// eslint-disable-next-line @typescript-eslint/no-explicit-any
export type Client = RedisClientType<any, any, any, any, any>;

class Script {
  readonly text: string;
  readonly digest: string;

  constructor(name: string) {
    this.text = readFileSync(new URL(`../lua/${name}.lua`, import.meta.url), 'utf8');
    this.digest = createHash('sha1').update(this.text).digest('hex');
  }
}

export const ACQUIRE = new Script('redisson_acquire');
export const RELEASE = new Script('redisson_release');
export const ABANDON = new Script('redisson_abandon');
export const RENEW = new Script('renew');

/** A key beside the lock's, in the same slot of a cluster, as Redisson names it. */
export function prefixed(prefix: string, name: string): string {
  return name.includes('{') ? `${prefix}:${name}` : `${prefix}:{${name}}`;
}

/** Sends commands, each with a bound on the time of its answer. */
export class Server {
  constructor(
    private readonly client: Client,
    private readonly responseTimeout: number,
  ) {}

  async send<T>(...words: string[]): Promise<T> {
    const controller = new AbortController();
    let timer: NodeJS.Timeout | undefined;
    const late = new Promise<never>((_, reject) => {
      timer = setTimeout(() => {
        reject(new NoAnswerError(`Redis did not answer within ${this.responseTimeout} ms`));
        // What is not sent yet need not be sent.
        controller.abort();
      }, this.responseTimeout);
    });
    try {
      const asking = this.client.sendCommand(words, { abortSignal: controller.signal });
      return (await Promise.race([asking, late])) as T;
    } finally {
      clearTimeout(timer);
    }
  }

  /** By its digest; a server that does not know it gets its text. */
  async once<T>(script: Script, keys: string[], args: (string | number)[]): Promise<T> {
    const words = [String(keys.length), ...keys, ...args.map(String)];
    try {
      return await this.send<T>('EVALSHA', script.digest, ...words);
    } catch (error) {
      if (isUnanswered(error) || !(error as Error).message.startsWith('NOSCRIPT')) throw error;
      return await this.send<T>('EVAL', script.text, ...words);
    }
  }

  /** A lost answer costs one repetition, which is safe: the scripts count it once. */
  async call<T>(script: Script, keys: string[], args: (string | number)[]): Promise<T> {
    try {
      return await this.once<T>(script, keys, args).catch((error: unknown) => {
        if (!isUnanswered(error)) throw error;
        return this.once<T>(script, keys, args);
      });
    } catch (error) {
      throw scriptError(error);
    }
  }
}

/**
 * Waits until `arm`'s argument is called (true) or the time is over (false). An abort rejects.
 */
export function wait(
  ms: number,
  signal: AbortSignal | undefined,
  arm: (wake: () => void) => void,
): Promise<boolean> {
  return new Promise((resolve, reject) => {
    const end = (settle: () => void) => {
      clearTimeout(timer);
      signal?.removeEventListener('abort', abort);
      settle();
    };
    const abort = () => end(() => reject(signal?.reason));
    const timer = setTimeout(() => end(() => resolve(false)), ms);
    signal?.addEventListener('abort', abort, { once: true });
    arm(() => end(() => resolve(true)));
  });
}
