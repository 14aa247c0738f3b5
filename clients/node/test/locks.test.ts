import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import { createClient } from '@redis/client';
import {
  Guard,
  HeldByOtherKindError,
  LockLostError,
  LockTimeoutError,
  type Locks,
  NoAnswerError,
} from '../src/index.js';
import { RELEASE, type Server } from '../src/server.js';
import { LIMIT, connected, eventually, freePort, freshName, waiters, withTwo } from './support.js';

test('a second owner waits until the first one releases', () =>
  withTwo(async (locks, others, client) => {
    // A process that stands still is late once, and one that polls is late each time.
    await eventually('the message wakes it', async () => {
      const name = freshName();
      const first = await locks.lock(name);
      assert.equal(await others.tryLock(name), undefined);
      const waiting = others.lock(name, { wait: LIMIT });
      await eventually('the waiter waits', async () => (await waiters(client, name)) === 1);
      const begun = performance.now();
      assert.equal(await first.release(), 'released');
      const second = await waiting;
      const took = performance.now() - begun;
      assert.equal(await locks.tryLock(name), undefined);
      assert.equal(await second.release(), 'released');
      assert.equal(await second.release(), 'released', 'a second release is the first');
      return took < 500;
    });
  }));

test('tasks of one process enter one at a time', () =>
  withTwo(async (locks) => {
    const name = freshName();
    let counted = 0;
    const enter = async (): Promise<void> => {
      for (let round = 0; round < 25; round += 1) {
        await locks.using(name, { wait: LIMIT }, async () => {
          const seen = counted;
          await sleep(0);
          counted = seen + 1;
        });
      }
    };
    await Promise.all([enter(), enter(), enter(), enter()]);
    assert.equal(counted, 100);
  }));

test('a wait that is over rejects with a timeout', () =>
  withTwo(async (locks, others) => {
    const name = freshName();
    const held = await locks.lock(name);
    const begun = performance.now();
    const waits = [locks, locks, others].map((waiting) => waiting.lock(name, { wait: 300 }));
    await Promise.all(waits.map((wait) => assert.rejects(wait, LockTimeoutError)));
    const took = performance.now() - begun;
    assert(took > 250 && took < LIMIT, `${took} ms`);
    await held.release();
  }));

test('the owner enters again and its last release frees', () =>
  withTwo(async (locks, others, client) => {
    const name = freshName();
    const outer = await locks.lock(name);
    const inner = await locks.lock(name, { owner: outer.owner });
    assert.equal(await client.hGet(name, outer.owner.text), '2');
    assert.equal(await outer.release(), 'released');
    assert.equal(await others.tryLock(name), undefined);
    assert.equal(await inner.release(), 'released');
    const next = await others.lock(name);
    await assert.rejects(locks.lock(name, { owner: outer.owner }), LockLostError);
    await next.release();
  }));

test('a renewed lease lasts and one that is not renewed ends', () =>
  withTwo(async (locks, others) => {
    const name = freshName();
    const renewed = await locks.lock(name, { lease: 9000 });
    const short = { lease: 900, renew: false };
    let fixed: Guard | undefined;
    // A process that stands still has lost it before it is handed out.
    await eventually('it is taken', async () => {
      fixed = await locks.lock(`${name}:fixed`, short).catch(() => undefined);
      return fixed !== undefined;
    });
    assert(fixed);
    const { signal } = fixed;
    await eventually('the loss is signalled', () => signal.aborted);
    assert.equal(fixed.lossCause, 'expired');
    assert(signal.reason instanceof LockLostError);
    const next = await others.lock(`${name}:fixed`, { wait: LIMIT });
    const end = renewed.validUntil + 2000;
    await eventually('it is renewed', () => renewed.validUntil > end);
    assert(!renewed.isLost);
    assert.equal(await others.tryLock(name), undefined);
    assert.equal(await fixed.release(), 'held_by_other');
    assert.equal(await next.release(), 'released');
    assert.equal(await renewed.release(), 'released');
  }));

test('a lock that is removed is lost and its work is told', () =>
  withTwo(async (locks, _, client) => {
    const name = freshName();
    const work = locks.using(name, { lease: 9000 }, async (guard) => {
      await client.del(name);
      await eventually('the loss is signalled', () => guard.signal.aborted);
      assert.equal(guard.lossCause, 'taken');
    });
    await assert.rejects(work, LockLostError);
  }));

test('a waiter that is aborted leaves neither hold nor subscription', () =>
  withTwo(async (locks, others, client) => {
    const name = freshName();
    const held = await locks.lock(name);
    const controller = new AbortController();
    const options = { wait: LIMIT, signal: controller.signal };
    // The first waits at the server, the second for its turn in the process.
    const waits = [others.lock(name, options), others.lock(name, options)];
    await eventually('the waiter waits', async () => (await waiters(client, name)) === 1);
    controller.abort();
    await Promise.all(waits.map((wait) => assert.rejects(wait, { name: 'AbortError' })));
    await held.release();
    await others.flush();
    assert.equal(await client.exists(name), 0);
    await eventually('no subscription is left', async () => (await waiters(client, name)) === 0);
    await (await others.lock(name)).release();
  }));

test('an acquisition that is aborted at any step holds nothing', () =>
  withTwo(async (locks, others, client) => {
    let [aborted, taken] = [0, 0];
    for (let steps = 0; taken < 20 && steps < 2000; steps += 1) {
      const name = freshName();
      const controller = new AbortController();
      const taking = locks.lock(name, { signal: controller.signal });
      const outcome = taking.then(
        (guard) => guard.release().then(() => true),
        () => false,
      );
      // Steps of the microtask queue first, then of the event loop.
      for (let step = 0; step < steps; step += 1) await (step < 20 ? undefined : sleep(0));
      controller.abort();
      if (await outcome) taken += 1;
      else aborted += 1;
      await locks.flush();
      assert.equal(await client.exists(name), 0, `after ${steps} steps`);
    }
    assert(aborted > 0 && taken > 0, `${aborted} aborted, ${taken} taken`);
  }));

test('a waiter that is aborted as it gets its turn passes it on', () =>
  withTwo(async (locks) => {
    // At one of these steps of the microtask queue the holder leaves between abort and rejection.
    for (let steps = 0; steps < 20; steps += 1) {
      const name = freshName();
      const [holder, waiter] = [new AbortController(), new AbortController()];
      const take = ({ signal }: AbortController) => locks.lock(name, { wait: LIMIT, signal });
      const outcomes = Promise.allSettled([holder, waiter].map(take));
      holder.abort();
      for (let step = 0; step < steps; step += 1) await undefined;
      waiter.abort();
      await outcomes;
      const next = await locks.lock(name, { wait: LIMIT }).catch(() => undefined);
      assert(next, `the turn is lost after ${steps} steps`);
      await next.release();
    }
  }));

test('a re-entry that is aborted leaves the outer hold although answers are lost', () =>
  withTwo(async (locks, _, client) => {
    const name = freshName();
    const outer = await locks.lock(name);
    const { server } = locks;
    const run = server.run.bind(server);
    server.run = (async (script, words, signal) => {
      const answer = await run(script, words, signal);
      if (script === RELEASE) throw new NoAnswerError('lost by the test');
      return answer;
    }) as Server['run'];
    const controller = new AbortController();
    const inner = locks.lock(name, { owner: outer.owner, signal: controller.signal });
    controller.abort();
    await assert.rejects(inner, { name: 'AbortError' });
    await locks.flush();
    assert.equal(await client.hGet(name, outer.owner.text), '1');
    server.run = run;
    assert.equal(await outer.release(), 'released');
  }));

test('an acquisition that is aborted by the loss of another lock holds nothing', () =>
  withTwo(async (locks, _, client) => {
    const name = freshName();
    const controller = new AbortController();
    // The server knows the script, and no connection has sent it last.
    await (await locks.lock(name)).release();
    assert.equal(await client.exists(name), 0);
    const observer = await connected();
    await observer.sendCommand(['CLIENT', 'PAUSE', String(LIMIT), 'WRITE']);
    const taking = assert.rejects(locks.lock(name, { signal: controller.signal }), LockLostError);
    await eventually('the server has the request', async () =>
      String(await observer.sendCommand(['CLIENT', 'LIST'])).includes('cmd=evalsha'),
    );
    controller.abort(new LockLostError('the outer lock is lost'));
    await taking;
    await observer.sendCommand(['CLIENT', 'UNPAUSE']);
    observer.destroy();
    await locks.flush();
    assert.equal(await client.exists(name), 0);
  }));

test('names that share a channel are both woken', () =>
  withTwo(async (locks, others, client) => {
    // A process that stands still is late once, and one that polls is late each time.
    await eventually('both are woken by messages', async () => {
      const plain = freshName();
      const held = [await locks.lock(plain), await locks.lock(`{${plain}}`)];
      const before = others.stats.busy;
      const waits = held.map((guard) => others.lock(guard.owner.name, { wait: LIMIT }));
      await eventually('they wait', async () => (await waiters(client, plain)) === 1);
      // Once more after the confirmation of the subscription.
      await eventually('both have asked twice', () => others.stats.busy >= before + 4);
      const begun = performance.now();
      for (const [at, guard] of held.entries()) {
        await guard.release();
        await (await waits[at]!).release();
      }
      return performance.now() - begun < 500;
    });
  }));

test('scripts that the server has forgotten are sent again', () =>
  withTwo(async (locks, _, client) => {
    const guard = await locks.lock(freshName());
    await client.sendCommand(['SCRIPT', 'FLUSH']);
    assert.equal(await guard.release(), 'released');
    await client.sendCommand(['SCRIPT', 'FLUSH']);
    await (await locks.lock(freshName())).release();
  }));

test('a lost message costs a second at most', () =>
  withTwo(async (locks, others, client) => {
    // A process that stands still is late once; one that polls less often is late each time.
    const took: number[] = [];
    while (took.length < 4 && !took.some((ms) => ms < 2000)) {
      const [name, before] = [freshName(), others.stats.busy];
      await locks.lock(name);
      const waiting = others.lock(name, { wait: LIMIT });
      // Once more after the confirmation of the subscription.
      await eventually('it has asked twice', () => others.stats.busy >= before + 2);
      const begun = performance.now();
      await client.del(name);
      await (await waiting).release();
      took.push(performance.now() - begun);
    }
    assert(Math.min(...took) < 2000, `${took} ms`);
  }));

test('a waiter outlives its lost connection for messages', () =>
  withTwo(async (locks, others, client) => {
    const name = freshName();
    const held = await locks.lock(name);
    const waiting = others.lock(name, { wait: LIMIT });
    await eventually('the waiter waits', async () => (await waiters(client, name)) === 1);
    await client.sendCommand(['CLIENT', 'KILL', 'TYPE', 'pubsub']);
    await eventually('it subscribes again', async () => (await waiters(client, name)) === 1);
    await held.release();
    await (await waiting).release();
  }));

/** Has a waiter try connections for messages, which all fail; those that it makes. */
async function withoutMessages(locks: Locks, client: object, name: string) {
  const url = `redis://127.0.0.1:${await freePort()}`;
  const made: { destroy(): void }[] = [];
  const duplicate = () => {
    const away = createClient({ url, socket: { reconnectStrategy: 50 } });
    made.push(away);
    return away;
  };
  Object.assign(client, { duplicate });
  // In a process that stands still the wait may be over before it waits for messages.
  await eventually('a connection is tried', async () => {
    await assert.rejects(locks.lock(name, { wait: 100 }), LockTimeoutError);
    return made.length > 0;
  });
  return made;
}

test('locks are closed although their connection for messages is not made', () =>
  withTwo(async (locks, others, client) => {
    const name = freshName();
    const held = await others.lock(name);
    const made = await withoutMessages(locks, client, name);
    await held.release();
    // Until the end of the subscription is to be told as well.
    await sleep(400);
    const closing = locks.close().then(() => 'closed');
    const outcome = await Promise.race([closing, sleep(LIMIT, 'open', { ref: false })]);
    // Until another connection would be tried.
    await sleep(200);
    for (const away of made) away.destroy();
    assert.deepEqual([outcome, made.length], ['closed', 1]);
  }));

test('locks that are closed make no connection any more', () =>
  withTwo(async (locks, others, client) => {
    const name = freshName();
    const held = await others.lock(name);
    const made = await withoutMessages(locks, client, name);
    await locks.close();
    // Neither for a later waiter, nor for the end of a place.
    await assert.rejects(locks.lock(name, { wait: 500 }), LockTimeoutError);
    await sleep(400);
    for (const away of made) away.destroy();
    assert.equal(made.length, 1);
    await held.release();
  }));

test('a guard that is released in time is not lost after the end of its lease', () =>
  withTwo(async (locks) => {
    await eventually('it is released in time', async () => {
      const guard = await locks.lock(freshName(), { lease: 300 }).catch(() => undefined);
      if (guard === undefined) return false;
      const releasing = guard.release();
      const isInTime = performance.now() < guard.validUntil;
      await releasing;
      await sleep(guard.validUntil - performance.now() + 1);
      if (isInTime) assert(!guard.isLost && !guard.signal.aborted);
      return isInTime;
    });
  }));

test('a key that is no lock is refused and stays', () =>
  withTwo(async (locks, _, client) => {
    const name = freshName();
    await client.set(name, '3');
    await assert.rejects(locks.lock(name), HeldByOtherKindError);
    assert.equal(await client.get(name), '3');
  }));

test('a lock that is granted after its lease is lost and released', () =>
  withTwo(async (locks, _, client) => {
    const name = freshName();
    // If the process stands still, the pause may be over before the request.
    await eventually('it is lost', async () => {
      await client.sendCommand(['CLIENT', 'PAUSE', '500']);
      const outcome = await locks.lock(name, { lease: 100 }).catch((error: unknown) => error);
      if (outcome instanceof Guard) await outcome.release();
      return outcome instanceof LockLostError;
    });
    assert.equal(await client.exists(name), 0);
  }));

test('bad requests are refused before the server is asked', () =>
  withTwo(async (locks) => {
    const name = freshName();
    const { owner } = await locks.lock(name);
    const bad = [{ lease: 1 }, { wait: -1 }, { wait: 90_000_000 }, { owner }];
    const before = locks.stats.attempts;
    for (const options of bad) {
      await assert.rejects(locks.lock(`${name}:other`, options), RangeError);
    }
    await assert.rejects(locks.lock(''), RangeError);
    assert.equal(locks.stats.attempts, before, 'the server was asked');
  }));

test('the scripts of the package equal those of the tree', () => {
  for (const name of ['redisson_acquire', 'redisson_release', 'redisson_abandon', 'renew']) {
    const packed = new URL(`../lua/${name}.lua`, import.meta.url);
    const kept = new URL(`../../../../lua/lock/${name}.lua`, import.meta.url);
    assert.equal(readFileSync(packed, 'utf8'), readFileSync(kept, 'utf8'), name);
  }
});
