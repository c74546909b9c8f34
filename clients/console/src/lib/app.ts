import { type Client, Code, CopilotError, toCopilotError } from "@copilot-grpc/client";
import { connect, type ConnectOptions } from "@copilot-grpc/client/web";
import { fetchMe, type Identity, linkToken, type LoginMethod, logOut, mayAct, mayOwn } from "./auth.js";
import { Connection } from "./connection.js";
import { FleetStream } from "./fleetstream.js";
import { InboxStream } from "./inboxstream.js";
import { LastMessages } from "./lastmessages.js";
import { Offers } from "./offers.js";
import { Store } from "./store.js";

/** Everything of a logged-in caller. */
export interface Desk {
  readonly client: Client;
  readonly identity: Identity;
  readonly fleet: FleetStream;
  readonly inbox: InboxStream;
  readonly offers: Offers;
  readonly lastMessages: LastMessages;
  /** The caller may send, answer and change. */
  readonly acts: boolean;
  /** The caller may start sessions. */
  readonly owns: boolean;
}

/** What the console shows as a whole. */
export type AppState =
  | { readonly state: "starting" }
  /** The server does not answer; the console tries again. */
  | { readonly state: "unreachable"; readonly error: Error }
  | { readonly state: "login"; readonly methods: readonly LoginMethod[]; readonly expired: boolean }
  | { readonly state: "ready"; readonly desk: Desk };

const retryMs = 1_500;

/** The console: who is logged in, and the connection to the server. */
export class App {
  readonly state = new Store<AppState>({ state: "starting" });
  readonly connection = new Connection();
  #generation = 0;

  /** Finds out who the caller is, until the server answers. */
  async start(): Promise<void> {
    const generation = ++this.#generation;
    if (location.pathname === "/login" && linkToken(location.hash)) {
      // The page uses the link, also if the caller is logged in: the link may have another role.
      this.state.set({ state: "login", methods: [], expired: false });
      return;
    }
    for (;;) {
      try {
        const me = await fetchMe();
        if (generation !== this.#generation) return;
        if (me.state === "out") this.state.set({ state: "login", methods: me.methods, expired: false });
        else await this.#open(me.identity, generation);
        return;
      } catch (error) {
        if (generation !== this.#generation) return;
        this.state.set({ state: "unreachable", error: error as Error });
        await new Promise((resolve) => setTimeout(resolve, retryMs));
      }
    }
  }

  async #open(identity: Identity, generation: number): Promise<void> {
    const client = await connect({
      baseUrl: location.origin,
      name: "console",
      interceptors: [this.#noticeLogout],
      reconnect: { giveUpAfterMs: Number.POSITIVE_INFINITY, maxBackoffMs: 3_000 },
      logger: {
        debug: () => undefined,
        warn: (_message, attributes) => {
          const id = attributes?.["session_id"];
          if (typeof id === "string") this.connection.broken(id);
        },
        error: () => undefined,
      },
    });
    if (generation !== this.#generation) return void client.close();
    const fleet = new FleetStream(client, this.connection, this.isFinal);
    const reader = { name: identity.name || "console", handles: mayAct(identity) };
    const inbox = new InboxStream(client, this.connection, this.isFinal, reader);
    inbox.start();
    const offers = new Offers(client, this.isFinal);
    const lastMessages = new LastMessages(client);
    const rights = { acts: mayAct(identity), owns: mayOwn(identity) };
    this.state.set({ state: "ready", desk: { client, identity, fleet, inbox, offers, lastMessages, ...rights } });
  }

  async logOut(): Promise<void> {
    const redirect = await logOut();
    this.#close();
    if (redirect) location.assign(redirect);
    else await this.start();
  }

  #close(): void {
    const now = this.state.get();
    if (now.state !== "ready") return;
    this.state.set({ state: "starting" });
    now.desk.fleet.stop();
    now.desk.inbox.stop();
    now.desk.offers.stop();
    now.desk.lastMessages.stop();
    void now.desk.client.close();
  }

  /** A call without a valid login: show the login page. */
  readonly #noticeLogout: NonNullable<ConnectOptions["interceptors"]>[number] = (next) => async (request) => {
    try {
      return await next(request);
    } catch (error) {
      this.isFinal(toCopilotError(error));
      throw error;
    }
  };

  /** Reports whether another attempt cannot succeed. Without a valid login it shows the login page. */
  readonly isFinal = (thrown: unknown): boolean => {
    const error = toCopilotError(thrown);
    if (!(error instanceof CopilotError)) return false;
    if (error.code === Code.Unauthenticated) void this.#expired();
    return finalCodes.has(error.code);
  };

  async #expired(): Promise<void> {
    if (this.state.get().state !== "ready") return;
    this.#close();
    await this.start();
    const now = this.state.get();
    if (now.state === "login") this.state.set({ ...now, expired: true });
  }
}

const finalCodes = new Set([
  Code.Unauthenticated,
  Code.PermissionDenied,
  Code.NotFound,
  Code.Unimplemented,
  Code.InvalidArgument,
]);

export const app = new App();
