import type { Client } from "@copilot-grpc/client";
import { Store } from "./store.js";

type Offer = Awaited<ReturnType<Client["rpc"]["sessions"]["listShareOffers"]>>["offers"][number];

const pollMs = 15_000;

/** The sessions that other tenants offer to the caller's tenant. The server has no stream of them: it is asked. */
export class Offers {
  readonly offers = new Store<readonly Offer[]>([]);
  readonly #client: Client;
  readonly #isFinal: (error: unknown) => boolean;
  #over: AbortController | undefined;
  #timer: ReturnType<typeof setTimeout> | undefined;

  constructor(client: Client, isFinal: (error: unknown) => boolean) {
    this.#client = client;
    this.#isFinal = isFinal;
  }

  start(): void {
    if (this.#over) return;
    this.#over = new AbortController();
    void this.#ask(this.#over.signal);
  }

  stop(): void {
    this.#over?.abort();
    this.#over = undefined;
    clearTimeout(this.#timer);
  }

  /** Accepts or declines an offer for the whole tenant. Throws the server's error. */
  async settle(sessionId: string, accepts: boolean): Promise<void> {
    const { sessions } = this.#client.rpc;
    if (accepts) await sessions.acceptShare({ sessionId });
    else await sessions.declineShare({ sessionId });
    this.offers.update((offers) => offers.filter((offer) => offer.sessionId !== sessionId));
  }

  async #ask(signal: AbortSignal): Promise<void> {
    try {
      const { offers } = await this.#client.rpc.sessions.listShareOffers({}, { signal });
      if (!signal.aborted) this.offers.set(offers);
    } catch (error) {
      // A caller without the right to accept has no offers.
      if (signal.aborted || this.#isFinal(error)) return;
    }
    if (!signal.aborted) this.#timer = setTimeout(() => void this.#ask(signal), pollMs);
  }
}
