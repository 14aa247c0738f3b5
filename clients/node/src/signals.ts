import type { Client } from './server.js';

const UNSUBSCRIBE_DELAY_MS = 250;

/** A channel with a waiter, or with one in the last 250 ms. */
export class Channel {
  users = 0;
  isLive = false;
  /** A message is kept for a waiter that has not asked yet. */
  isSignalled = false;
  wake: () => void = () => {};

  constructor(readonly name: string) {}

  readonly signal = (): void => {
    this.isLive = true;
    this.isSignalled = true;
    this.wake();
  };
}

/** Wakes waiters at each message, and at each confirmation: one may be missed before. */
export class Signals {
  readonly channels = new Map<string, Channel>();
  #connection: Promise<Client> | undefined;
  /** That connection, which may not be made yet. */
  #duplicate: Client | undefined;
  /** Subscriptions and their ends are told to the server one after the other. */
  #order: Promise<unknown> = Promise.resolve();

  constructor(private readonly client: Client) {}

  enter(name: string): Channel {
    let channel = this.channels.get(name);
    if (channel === undefined) {
      channel = new Channel(name);
      this.channels.set(name, channel);
      const { signal } = channel;
      this.#tell(async (connection) => {
        await connection.subscribe(name, signal);
        signal();
      });
    } else if (channel.isLive) {
      channel.isSignalled = true;
    }
    channel.users += 1;
    return channel;
  }

  leave(channel: Channel): void {
    channel.users -= 1;
    setTimeout(() => {
      if (channel.users > 0 || this.channels.get(channel.name) !== channel) return;
      this.channels.delete(channel.name);
      this.#tell((connection) => connection.unsubscribe(channel.name, channel.signal));
    }, UNSUBSCRIBE_DELAY_MS).unref();
  }

  async close(): Promise<void> {
    const duplicate = this.#duplicate;
    this.#connection = this.#duplicate = undefined;
    // What is still to be told was meant for that connection.
    this.#order = Promise.resolve();
    this.channels.clear();
    // Connected or not: while Redis is away, node-redis tries for ever.
    if (duplicate?.isOpen) duplicate.destroy();
  }

  #tell(what: (connection: Client) => Promise<unknown>): void {
    // Now: what waits for its turn when the connection is closed must not make another one.
    const connection = this.#connect();
    // A failure leaves its waiters to polling; node-redis subscribes again when it can.
    this.#order = this.#order.then(async () => what(await connection)).catch(() => {});
  }

  #connect(): Promise<Client> {
    this.#connection ??= (async () => {
      const connection = this.client.duplicate() as Client;
      this.#duplicate = connection;
      connection.on('error', () => {
        for (const channel of this.channels.values()) channel.isLive = false;
      });
      connection.on('ready', () => {
        for (const channel of this.channels.values()) channel.signal();
      });
      await connection.connect();
      // Closed meanwhile: node-redis keeps a socket that was being opened.
      if (this.#duplicate !== connection) connection.destroy();
      return connection;
    })();
    const made = this.#connection;
    made.catch(() => {
      if (this.#connection === made) this.#connection = undefined;
    });
    return made;
  }
}
