/** A private Redis for the tests of a file, and what they share. */
import assert from 'node:assert/strict';
import { spawn, type ChildProcess } from 'node:child_process';
import { randomUUID } from 'node:crypto';
import { existsSync, mkdtempSync, rmSync } from 'node:fs';
import { createServer, type AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { delimiter, join } from 'node:path';
import { after, before } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import { createClient } from '@redis/client';
import { Locks } from '../src/index.js';

export const LIMIT = 10_000;
let port = 0;
let server: ChildProcess;
let folder: string;

// A private Redis. Debian's `redis-check-rdb` is the same program under another name.
before(async () => {
  const folders = (process.env.PATH ?? '').split(delimiter);
  const names = ['redis-server', 'redis-check-rdb'];
  const places = names.flatMap((name) => folders.map((place) => join(place, name)));
  const program = places.find((place) => existsSync(place));
  assert(program, 'missing: redis-server; apt-get install redis-tools brings it');
  port = await freePort();
  folder = mkdtempSync(join(tmpdir(), 'distlock-node-'));
  const words = ['--port', String(port), '--save', '', '--dir', folder];
  server = spawn(program, words, { argv0: 'redis-server', stdio: 'ignore' });
});

after(() => {
  server.kill('SIGKILL');
  rmSync(folder, { recursive: true });
});

export function freePort(): Promise<number> {
  return new Promise((resolve) => {
    const free = createServer().listen(0, '127.0.0.1', () => {
      const found = (free.address() as AddressInfo).port;
      free.close(() => resolve(found));
    });
  });
}

export type Client = Awaited<ReturnType<typeof connected>>;

export async function connected() {
  const client = createClient({ url: `redis://127.0.0.1:${port}` });
  client.on('error', () => {});
  await client.connect();
  return client;
}

/** Runs with what two processes are, as far as the server can see. */
export async function withTwo(
  run: (locks: Locks, others: Locks, client: Client) => Promise<void>,
): Promise<void> {
  const clients = [await connected(), await connected()] as const;
  const [locks, others] = clients.map((client) => new Locks(client)) as [Locks, Locks];
  try {
    await run(locks, others, clients[0]);
  } finally {
    await Promise.all([locks.close(), others.close()]);
    for (const client of clients) client.destroy();
  }
}

export const freshName = (): string => `lock:test:${randomUUID()}`;

export async function eventually(
  what: string,
  holds: () => Promise<boolean> | boolean,
): Promise<void> {
  for (const deadline = performance.now() + LIMIT; !(await holds()); await sleep(5)) {
    assert(performance.now() < deadline, `not within ${LIMIT} ms: ${what}`);
  }
}

export async function waiters(client: Client, name: string): Promise<number> {
  const channel = `redisson_lock__channel:{${name}}`;
  return Number((await client.pubSubNumSub([channel]))[channel]);
}
