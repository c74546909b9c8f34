// The last message of each session on the page, with a server and a clock of its own.
import assert from "node:assert/strict";
import { describe, test, type TestContext } from "node:test";
import type { Client, Event } from "@copilot-grpc/client";
import type { FleetRow } from "../src/lib/fleet.js";
import { LastMessages, lastOf } from "../src/lib/lastmessages.js";

const event = (of: "assistantMessage" | "userMessage", content: string, fields: object = {}) =>
  ({ event: { data: { case: of, value: { content, ...fields } } } }) as unknown as Event;
const agent = (content: string) => event("assistantMessage", content);
const user = (content: string, fields: object = {}) => event("userMessage", content, fields);

interface Request {
  readonly sessionId: string;
  readonly after: { readonly epoch: bigint; readonly seq: bigint };
  readonly filter: { readonly types: readonly string[]; readonly agentIds: readonly string[] };
  readonly pageToken: string;
}

interface Page {
  readonly events: readonly Event[];
  readonly nextPageToken: string;
}

const page = (...events: Event[]): Page => ({ events, nextPageToken: "" });

/** A server whose replies the test gives, with the requests that wait for one. */
class Server {
  readonly requests: Request[] = [];
  readonly #open: { sessionId: string; resolve: (page: Page) => void; reject: (error: Error) => void }[] = [];
  readonly last: LastMessages;

  constructor(context: TestContext) {
    context.mock.timers.enable({ apis: ["setTimeout", "Date"], now: 1_000_000 });
    const listEvents = (request: Request) => {
      this.requests.push(request);
      return new Promise<Page>((resolve, reject) => this.#open.push({ sessionId: request.sessionId, resolve, reject }));
    };
    this.last = new LastMessages({ rpc: { sessions: { listEvents } } } as unknown as Client);
  }

  /** The sessions whose requests have no reply, in order. */
  get open(): string[] {
    return this.#open.map(({ sessionId }) => sessionId);
  }

  /** Replies to the oldest request. */
  async reply(reply: Page | Error): Promise<void> {
    const { resolve, reject } = this.#open.shift() ?? assert.fail("no request waits");
    if (reply instanceof Error) reject(reply);
    else resolve(reply);
    await new Promise((resume) => setImmediate(resume));
  }

  message(id: string): string | undefined {
    return this.last.messages.get().get(id);
  }
}

const row = (id: string, seq: number | undefined, turnRunning = false) =>
  ({ id, turnRunning, position: seq === undefined ? undefined : { epoch: 7n, seq: BigInt(seq) } }) as FleetRow;

describe("the choice of the last message", () => {
  test("the agent's last words count, and else the user's", () => {
    assert.deepEqual(lastOf([]), { agent: "", user: "" });
    const first = lastOf([user("first"), agent("one"), user("second"), agent("two")]);
    assert.deepEqual(first, { agent: "two", user: "second" });
    // Messages without words call tools; prompts with a source are no user's.
    assert.deepEqual(lastOf([agent(" \n"), agent(""), user("go on", { source: "system" })], first), first);
    assert.deepEqual(lastOf([agent("# Three\n\n**it** is")], first), { agent: "Three it is", user: "second" });
  });

  test("the last page decides, and the pages are bounded", async (context) => {
    const server = new Server(context);
    server.last.show(row("a", 1_000));
    await server.reply({ events: [user("a prompt"), agent("of the first page")], nextPageToken: "2" });
    await server.reply({ events: [agent("of the second page")], nextPageToken: "3" });
    assert.equal(server.message("a"), undefined);
    await server.reply(page(agent("")));
    assert.equal(server.message("a"), "of the second page");
    assert.deepEqual(server.requests.map(({ pageToken }) => pageToken), ["", "2", "3"]);
    assert.deepEqual(server.requests[0]?.after, { epoch: 7n, seq: 800n });
    assert.deepEqual(server.requests[0]?.filter.types, ["assistant.message", "user.message"]);
    assert.deepEqual(server.requests[0]?.filter.agentIds, ["main"]);

    server.last.show(row("endless", 100));
    for (let pages = 0; server.open.length > 0; pages++) {
      assert.ok(pages < 20, "the pages have no bound");
      await server.reply({ events: [agent("not the last one")], nextPageToken: "more" });
    }
    assert.deepEqual(server.requests.at(-1)?.after, { epoch: 7n, seq: 0n });
    assert.equal(server.message("endless"), undefined);
  });

  test("a session without words shows the prompt, or nothing", async (context) => {
    const server = new Server(context);
    server.last.show(row("asked", 3));
    server.last.show(row("silent", 3));
    await server.reply(page(user("what now?")));
    await server.reply(page());
    assert.deepEqual([...server.last.messages.get()], [["asked", "what now?"]]);
  });
});

describe("the requests for last messages", () => {
  test("three at a time, only of rows that are on the page", async (context) => {
    const server = new Server(context);
    const hide = ["a", "b", "c", "d", "e"].map((id) => server.last.show(row(id, 10)));
    assert.deepEqual(server.open, ["a", "b", "c"]);
    hide[3]?.();
    await server.reply(page(agent("A")));
    assert.deepEqual(server.open, ["b", "c", "e"]);
    // Scrolled away and back: what was asked is known.
    hide[0]?.();
    server.last.show(row("a", 10));
    for (const text of ["B", "C", "E"]) await server.reply(page(agent(text)));
    assert.deepEqual(server.open, []);
    assert.deepEqual(Object.fromEntries(server.last.messages.get()), { a: "A", b: "B", c: "C", e: "E" });
  });

  test("a session without events is not asked", (context) => {
    const server = new Server(context);
    server.last.show(row("history", undefined));
    server.last.show(row("new", 0));
    assert.deepEqual(server.open, []);
  });

  test("a new position asks an idle session again at once, and keeps the message until then", async (context) => {
    const server = new Server(context);
    const hide = server.last.show(row("a", 10));
    await server.reply(page(agent("before")));
    hide();
    server.last.show(row("a", 11));
    assert.deepEqual(server.open, ["a"]);
    assert.equal(server.message("a"), "before");
    await server.reply(page(agent("after")));
    assert.equal(server.message("a"), "after");
  });

  test("a running session is asked every few seconds, for its newest position", async (context) => {
    const server = new Server(context);
    let hide = server.last.show(row("a", 10, true));
    await server.reply(page());
    for (let seq = 20; seq < 30; seq++) {
      hide();
      hide = server.last.show(row("a", seq, true));
    }
    assert.equal(server.requests.length, 1);
    context.mock.timers.tick(1_999);
    assert.equal(server.requests.length, 1);
    context.mock.timers.tick(8_000);
    assert.equal(server.requests.length, 2);
    await server.reply(page(agent("half of it")));
    context.mock.timers.tick(60_000);
    assert.equal(server.requests.length, 2, "the position is the same");
  });

  test("a refusal shows nothing, and is not repeated for the position", async (context) => {
    const server = new Server(context);
    let hide = server.last.show(row("a", 10));
    await server.reply(page(agent("allowed")));
    hide();
    hide = server.last.show(row("a", 11));
    await server.reply(new Error("denied"));
    assert.equal(server.message("a"), undefined);
    hide();
    hide = server.last.show(row("a", 11, true));
    context.mock.timers.tick(60_000);
    assert.deepEqual(server.open, []);
    hide();
    server.last.show(row("a", 12));
    await server.reply(page(agent("allowed again")));
    assert.equal(server.message("a"), "allowed again");
  });

  test("what is kept is bounded", async (context) => {
    const server = new Server(context);
    for (let at = 0; at < 1_500; at++) {
      const hide = server.last.show(row(`s-${at}`, 10));
      await server.reply(page(agent("words")));
      hide();
    }
    const kept = [...server.last.messages.get().keys()];
    assert.deepEqual([kept.length, kept[0], kept.at(-1)], [1_000, "s-500", "s-1499"]);
  });

  test("nothing is asked after the end", async (context) => {
    const server = new Server(context);
    for (const id of ["a", "b", "c", "d"]) server.last.show(row(id, 10));
    server.last.stop();
    await server.reply(page(agent("too late")));
    assert.deepEqual(server.open, ["b", "c"]);
    assert.equal(server.message("a"), undefined);
  });
});
