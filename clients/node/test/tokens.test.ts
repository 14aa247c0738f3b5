import assert from 'node:assert/strict';
import { test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import { LockLostError, type Guard, type Locks } from '../src/index.js';
import { LIMIT, eventually, freshName, withTwo } from './support.js';

test('all holds of an owner have one token and each owner a higher one', () => {
  let last = 0n;
  const tokenIssuer = { next: async () => ++last };
  return withTwo(async (locks) => {
    const name = freshName();
    const outer = await locks.lock(name, { tokenIssuer });
    const inner = await locks.lock(name, { tokenIssuer, owner: outer.owner });
    assert.deepEqual([outer.token, inner.token], [1n, 1n]);
    await Promise.all([outer.release(), inner.release()]);
    const later = await locks.lock(name, { tokenIssuer });
    assert.equal(later.token, 2n);
    await later.release();
  });
});

test('a token that comes after the lease is not handed out', () => {
  let other: Locks;
  let second: Guard | undefined;
  const next = async (name: string): Promise<bigint> => {
    second = await other.lock(name, { wait: LIMIT });
    return 1n;
  };
  return withTwo(async (locks, others) => {
    const name = freshName();
    other = others;
    const late = locks.lock(name, { lease: 200, renew: false, tokenIssuer: { next } });
    await assert.rejects(late, LockLostError);
    await eventually('the second owner holds it', () => second !== undefined);
    assert.equal(await locks.tryLock(name), undefined);
    assert.equal(await second?.release(), 'released');
  });
});

test('a draw that fails leaves nothing and the next hold of the owner draws', () =>
  withTwo(async (locks, _, client) => {
    const name = freshName();
    const failing = { next: () => Promise.reject(new Error('the database is away')) };
    await assert.rejects(locks.lock(name, { tokenIssuer: failing }), /is away/);
    assert.equal(await client.exists(name), 0);
    const outer = await locks.lock(name);
    const { owner } = outer;
    await assert.rejects(locks.lock(name, { owner, tokenIssuer: failing }), /is away/);
    const inner = await locks.lock(name, { owner, tokenIssuer: { next: async () => 1n } });
    assert.deepEqual([outer.token, inner.token], [undefined, 1n]);
    await Promise.all([outer.release(), inner.release()]);
    assert.equal(await client.exists(name), 0);
  }));

test('a token that comes within a renewed lease is handed out', () =>
  withTwo(async (locks) => {
    const lease = 1500;
    // Beyond the lease as it was granted.
    const tokenIssuer = { next: () => sleep(lease + 200, 1n) };
    // A process that stands still loses the lock meanwhile.
    await eventually('it is handed out', async () => {
      const taking = locks.lock(freshName(), { lease, tokenIssuer });
      const guard = await taking.catch((error: unknown) => {
        if (!(error instanceof LockLostError)) throw error;
      });
      await guard?.release();
      return guard?.token === 1n;
    });
  }));

test('an abort does not wait for an issuer of tokens', () =>
  withTwo(async (locks, _, client) => {
    const name = freshName();
    const controller = new AbortController();
    const tokenIssuer = {
      next: () => {
        controller.abort();
        return new Promise<bigint>(() => {});
      },
    };
    const taking = locks.lock(name, { tokenIssuer, signal: controller.signal });
    const outcome = await Promise.race([
      taking.catch((error: Error) => error.name),
      sleep(LIMIT, 'it waits', { ref: false }),
    ]);
    assert.equal(outcome, 'AbortError');
    assert.equal(await client.exists(name), 0);
  }));
