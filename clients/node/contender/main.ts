/**
 * A contender of Node: takes, keeps and loses locks on commands from stdin.
 *
 * It speaks the protocol of `conformance/src/protocol.rs`, knows a part of its commands and refuses
 * the others. It ends when stdin does, without releasing anything.
 */
import { randomUUID } from 'node:crypto';
import { openSync, readSync, writeSync } from 'node:fs';
import { createInterface } from 'node:readline';
import { setImmediate as yieldOnce, setTimeout as sleep } from 'node:timers/promises';
import { createClient } from '@redis/client';
import {
  HeldByOtherKindError,
  LockLostError,
  LockTimeoutError,
  Locks,
  type Guard,
  type Owner,
} from '../src/index.js';

interface LockRequest {
  name: string;
  wait_ms: number;
  lease_ms: number;
  renewed: boolean | null;
  max_hold_ms: number | null;
  fenced: boolean;
  as_owner: string | null;
}

interface Contest {
  request: LockRequest;
  tasks: number;
  rounds: number;
  until_ns: number | null;
  hold_us: number;
  counter: string;
  ignore_loss: boolean;
}

class Refusal extends Error {
  constructor(
    readonly code: string,
    message: string,
  ) {
    super(message);
  }
}

/** CLOCK_MONOTONIC, which is the same for all processes of a Linux machine. */
const now = (): number => Number(process.hrtime.bigint());

/** When the validity of a hold ends. */
const until = (guard: Guard): number =>
  Math.round(now() + (guard.validUntil - performance.now()) * 1e6);

function say(id: number | null, response: unknown): void {
  process.stdout.write(`${JSON.stringify({ id, at_ns: now(), response })}\n`);
}

function codeOf(error: unknown): string {
  if (error instanceof Refusal) return error.code;
  if (error instanceof LockTimeoutError) return 'timed_out';
  if (error instanceof LockLostError) return 'lost';
  if (error instanceof HeldByOtherKindError) return 'held_by_other_kind';
  return error instanceof RangeError ? 'bad_request' : 'backend';
}

const failed = (error: unknown) => ({ failed: { code: codeOf(error), message: String(error) } });

/** A number in a file that nothing guards: 20 digits, written in one piece. */
class Counter {
  readonly #file: number;

  constructor(path: string) {
    // As `O_RDWR | O_CREAT`, without truncation.
    this.#file = openSync(path, 0o102, 0o644);
  }

  read(): bigint {
    const digits = Buffer.alloc(20);
    return readSync(this.#file, digits, 0, 20, 0) === 0 ? 0n : BigInt(digits.toString());
  }

  write(number: bigint): void {
    writeSync(this.#file, String(number).padStart(20, '0'), 0);
  }
}

const lines = createInterface({ input: process.stdin })[Symbol.asyncIterator]();
const first = await lines.next();
const setup = JSON.parse(first.value);
const client = createClient({ url: setup.addresses.redis });
client.on('error', (error) => console.error(`contender: ${error}`));
// A counter in Redis is no token source: a failover may set it back. For tests it will do.
const tokenIssuer = { next: async (name: string) => BigInt(await client.incr(`tokens:${name}`)) };
const locks = new Locks(client);
const holds = new Map<number, Guard>();
const owners = new Map<string, Owner>();
let lastHandle = 0;

function acquire(want: LockRequest): Promise<Guard> {
  if (want.max_hold_ms !== null) throw new Refusal('unsupported', 'max_hold_ms');
  const owner = want.as_owner === null ? undefined : owners.get(want.as_owner);
  if (want.fenced && !setup.token_source) throw new Refusal('bad_request', 'no token issuer');
  if (want.as_owner !== null && owner === undefined) throw new Refusal('lost', 'no such owner');
  return locks.lock(want.name, {
    wait: want.wait_ms,
    lease: want.lease_ms,
    renew: want.renewed !== false,
    ...(want.fenced && { tokenIssuer }),
    ...(owner && { owner }),
  });
}

function find(handle: number): Guard {
  const guard = holds.get(handle);
  if (guard === undefined) throw new Refusal('no_such_handle', 'the contender does not hold that');
  return guard;
}

async function lock(want: LockRequest): Promise<unknown> {
  const asked = now();
  const guard = await acquire(want);
  const acquired = now();
  const handle = ++lastHandle;
  holds.set(handle, guard);
  owners.set(guard.owner.text, guard.owner);
  guard.signal.addEventListener('abort', () => {
    if (!holds.has(handle)) return;
    const report = { handle, cause: guard.lossCause, told_ns: now(), valid_until_ns: until(guard) };
    say(null, { lost: report });
  });
  const token = guard.token === undefined ? null : Number(guard.token);
  const times = { asked_ns: asked, acquired_ns: acquired, valid_until_ns: until(guard) };
  return { held: { handle, owner: guard.owner.text, token, ...times } };
}

async function contend(contest: Contest): Promise<unknown> {
  const counter = new Counter(contest.counter);
  const failures: Record<string, number> = {};
  const rounds = async (task: number): Promise<unknown[]> => {
    const records: unknown[] = [];
    for (let round = 0; round < contest.rounds; round += 1) {
      if (contest.until_ns !== null && now() >= contest.until_ns) break;
      try {
        records.push(await enterSection(task, contest, counter));
      } catch (error) {
        console.error(`contender: ${error}`);
        failures[codeOf(error)] = (failures[codeOf(error)] ?? 0) + 1;
      }
    }
    return records;
  };
  const tasks = Array.from({ length: contest.tasks }, (_, task) => task);
  const brought = await Promise.all(tasks.map(rounds));
  return { contended: { records: brought.flat(), failures } };
}

async function enterSection(task: number, contest: Contest, counter: Counter): Promise<unknown> {
  const asked = now();
  const guard = await acquire(contest.request);
  const acquired = now();
  const seen = counter.read();
  if (contest.hold_us === 0) await yieldOnce();
  else await sleep(contest.hold_us / 1000);
  const writes = contest.ignore_loss || !guard.isLost;
  if (writes) counter.write(seen + 1n);
  const valid = Math.min(now(), until(guard));
  await guard.release();
  return [task, asked, [0, 0], acquired, valid, now(), writes, Number(guard.token ?? 0)];
}

/** Effects, each after a look at the lock, and the longest time in which none was possible. */
async function watch(handle: number, file: string, pauseUs: number, begun: () => void) {
  const guard = find(handle);
  const counter = new Counter(file);
  let seen = now();
  const report = { handle, effects: 0, valid_ns: seen, last_effect_ns: seen, looked_ns: seen };
  const gap = { slept_ns: seen, woke_ns: seen, effects_since: 0 };
  const note = (): number => {
    const last = seen;
    seen = now();
    if (seen - last > gap.woke_ns - gap.slept_ns) {
      Object.assign(gap, { slept_ns: last, woke_ns: seen, effects_since: 0 });
    }
    return seen;
  };
  for (;;) {
    const begin = note();
    if (guard.isLost) break;
    report.valid_ns = begin;
    counter.write(counter.read() + 1n);
    report.effects += 1;
    gap.effects_since += 1;
    report.last_effect_ns = note();
    begun();
    await sleep(pauseUs / 1000);
  }
  report.looked_ns = note();
  begun();
  say(null, { watched: { ...report, ...gap } });
}

// eslint-disable-next-line @typescript-eslint/no-explicit-any
async function obey(verb: string, what: any): Promise<unknown> {
  switch (verb) {
    case 'lock':
      return lock(what);
    case 'release': {
      const guard = find(what.handle);
      holds.delete(what.handle);
      return { released: await guard.release() };
    }
    case 'is_lost':
      return { looked: { lost: find(what.handle).isLost } };
    case 'validity':
      return { validity: { until_ns: until(find(what.handle)), looked_ns: now() } };
    case 'effect': {
      const done = !find(what.handle).isLost;
      const counter = new Counter(what.file);
      if (done) counter.write(counter.read() + 1n);
      return { effected: { done } };
    }
    case 'watch':
      await new Promise<void>((resolve, reject) => {
        watch(what.handle, what.file, what.pause_us, resolve).catch(reject);
      });
      return 'done';
    case 'inspect': {
      const left = Number(await client.sendCommand(['PTTL', what.name]));
      return { inspected: { is_locked: left !== -2, left_ms: left } };
    }
    case 'contend':
      return contend(what);
    case 'count': {
      const { attempts, busy, handOffs } = locks.stats;
      return { counted: { attempts, busy, hand_offs: handOffs } };
    }
    case 'flush':
      await locks.flush();
      return 'done';
    default:
      throw new Refusal('unsupported', 'this contender has no such command');
  }
}

async function answer(id: number, command: unknown): Promise<void> {
  const [verb, what] =
    typeof command === 'string' ? [command, {}] : (Object.entries(command as object)[0] ?? []);
  say(id, await obey(verb ?? '', what).catch(failed));
}

try {
  await client.connect();
  await (await locks.lock(`lock:warm-up:${randomUUID()}`)).release();
} catch (error) {
  say(null, failed(error));
  process.exit(0);
}
say(null, 'ready');
for (let line = await lines.next(); !line.done; line = await lines.next()) {
  const { id, command } = JSON.parse(line.value);
  void answer(id, command);
}
process.exit(0);
