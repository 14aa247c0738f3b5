import { channelOf, type Client } from './server.js';

const LINGER_MS = 250;

/** What the process keeps of a name that is in use, or was 250 ms ago. */
export class Place {
  users = 0;
  /** Ends when all that came before have asked the server, in the order of arrival. */
  turn = Promise.resolve(true);
  /** How often to look at the lock before it is asked for. */
  looks = 0;
  isLive = false;
  wake: (isMessage: true) => void = () => {};

  constructor(readonly name: string) {}

  readonly signal = (): void => {
    this.isLive = true;
    this.wake(true);
  };
}

/** Wakes waiters at each message, and at each confirmation: one may be missed before. */
export class Places {
  readonly #places = new Map<string, Place>();
  readonly #listening = new Set<Place>();
  /** One connection for all names, which node-redis makes again when it is lost. */
  #listener: Client | undefined;
  #isClosed = false;
  /** Subscriptions and their ends are told to the server one after the other. */
  #order: Promise<unknown> = Promise.resolve();

  constructor(private readonly client: Client) {}

  enter(name: string): Place {
    const place = this.#places.get(name) ?? new Place(name);
    this.#places.set(name, place);
    place.users += 1;
    return place;
  }

  leave(place: Place): void {
    const drop = (): void => {
      place.users -= 1;
      if (place.users > 0) return;
      this.#places.delete(place.name);
      if (this.#isClosed || !this.#listening.delete(place)) return;
      this.#tell((listener) => listener.unsubscribe(channelOf(place.name), place.signal));
    };
    setTimeout(drop, LINGER_MS).unref();
  }

  listen(place: Place): void {
    if (this.#isClosed || this.#listening.has(place)) return;
    this.#listening.add(place);
    this.#tell(async (listener) => {
      await listener.subscribe(channelOf(place.name), place.signal);
      place.signal();
    });
  }

  close(): void {
    this.#isClosed = true;
    // Connected or not: while Redis is away, node-redis tries for ever.
    if (this.#listener?.isOpen) this.#listener.destroy();
  }

  #tell(what: (listener: Client) => Promise<unknown>): void {
    const listener = (this.#listener ??= this.#connect());
    // A failure leaves its waiters to polling; node-redis subscribes again when it can.
    this.#order = this.#order.then(() => what(listener)).catch(() => {});
  }

  #connect(): Client {
    const listener = this.client.duplicate() as Client;
    listener.on('error', () => this.#listening.forEach((place) => (place.isLive = false)));
    listener.on('ready', () => this.#listening.forEach((place) => place.signal()));
    // Closed meanwhile: node-redis keeps a socket that was being opened.
    const made = (): void => void (this.#isClosed && listener.destroy());
    listener.connect().then(made, () => (this.#listener = undefined));
    return listener;
  }
}
