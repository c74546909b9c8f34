// A conversation over a client that replays frames.
import assert from "node:assert/strict";
import { describe, test } from "node:test";
import type { Client, SubscribeResponse } from "@copilot-grpc/client";
import { emptyView, type View, type ViewItem } from "@copilot-grpc/client/view";
import { Connection } from "../src/lib/connection.js";
import { Conversation } from "../src/lib/conversation.js";
import { entriesOf } from "../src/lib/entries.js";

/** A frame with one message of the agent at a sequence number. */
function message(seq: number, content: string): SubscribeResponse {
  const position = { epoch: 1n, seq: BigInt(seq) };
  const data = { case: "assistantMessage", value: { messageId: `m${seq}`, content, toolRequests: [] } };
  const event = { id: `e${seq}`, data };
  return { frame: { case: "events", value: { events: [{ position, event }] } }, resumeAfter: position } as never;
}

const caughtUp = { frame: { case: "caughtUp", value: {} } } as SubscribeResponse;

/** A client whose only session has these frames, and then waits or fails. */
function client(frames: SubscribeResponse[], end: Promise<never>): Client {
  async function* read() {
    yield* frames;
    await end;
  }
  return { session: () => ({ frames: read, close: () => Promise.resolve() }) } as unknown as Client;
}

/** Lets the reading of frames go on until nothing more is ready. */
const settle = () => new Promise((resolve) => setImmediate(resolve));
const never = new Promise<never>(() => undefined);

describe("conversation", () => {
  test("frames between two frames of the screen change the page once", async () => {
    const screen: (() => void)[] = [];
    const schedule = (run: () => void) => {
      screen.push(run);
      return () => undefined;
    };
    const frames = [message(1, "one"), message(2, "two"), caughtUp];
    const conversation = new Conversation(client(frames, never), new Connection(), "s", schedule, () => 0);
    const shown: number[] = [];
    conversation.view.subscribe((view) => shown.push(view.items.length));
    conversation.start();
    await settle();
    assert.equal(screen.length, 1);
    screen.shift()?.();
    assert.deepEqual(shown, [0, 2]);
    conversation.stop();
  });

  test("a long replay is spread over frames of the screen", async () => {
    const screen: (() => void)[] = [];
    let now = 0;
    const schedule = (run: () => void) => {
      screen.push(run);
      return () => undefined;
    };
    const frames = [...Array.from({ length: 50 }, (_, n) => message(n + 1, "x")), caughtUp];
    // Each look at the clock takes 5 ms: two frames fit into the budget of one frame of the screen.
    const conversation = new Conversation(client(frames, never), new Connection(), "s", schedule, () => (now += 5));
    conversation.start();
    await settle();
    let drawn = 0;
    while (screen.length > 0) {
      screen.shift()?.();
      drawn++;
    }
    assert.ok(drawn > 10, `drawn ${drawn} times`);
    assert.equal(conversation.view.get().items.length, 50);
    assert.ok(conversation.view.get().caughtUp);
    conversation.stop();
  });

  test("an error that is final is shown", async () => {
    const failed = Promise.reject<never>(new Error("gone"));
    failed.catch(() => undefined);
    const conversation = new Conversation(client([], failed), new Connection(), "s", () => () => undefined);
    conversation.start();
    await settle();
    assert.match(conversation.failure.get()?.message ?? "", /gone/);
  });
});

describe("entries", () => {
  test("the agent works, and a turn that failed says so", () => {
    const view = emptyView();
    const running: View = { ...view, turn: { running: true, intent: "Reading", outcome: undefined } };
    assert.deepEqual(entriesOf(running), [{ key: "working", depth: 0, kind: "working", intent: "Reading" }]);
    const outcome = { status: "failed", error: { message: "no model" } } as View["turn"]["outcome"];
    assert.deepEqual(
      entriesOf({ ...view, turn: { running: false, intent: "", outcome } }).map(({ kind }) => kind),
      ["outcome"],
    );
  });

  test("the steps of a sub-agent follow the call that started it, while it runs or if the user shows them", () => {
    const tool = (key: string, agentId = "") =>
      ({ kind: "tool", key, toolCallId: key, agentId, name: "task", state: "running" }) as unknown as ViewItem;
    const task = { kind: "user", key: "u", agentId: "a1", text: "look" } as unknown as ViewItem;
    const agent = { agentId: "a1", toolCallId: "t1", name: "Explorer", state: "running" } as View["agents"][number];
    const items = [tool("t1"), task, tool("t2"), tool("t3", "a1")];
    const view: View = { ...emptyView(), items, agents: [agent] };
    const shown = (next: View, expanded?: Map<string, boolean>) =>
      entriesOf(next, expanded).map(({ key, depth }) => `${depth} ${key}`);
    assert.deepEqual(shown(view), ["0 tool t1", "1 tool t3", "0 tool t2"]);
    const done: View = { ...view, agents: [{ ...agent, state: "completed" }] };
    assert.deepEqual(shown(done), ["0 tool t1", "0 tool t2"]);
    assert.deepEqual(shown(done, new Map([["t1", true]])), ["0 tool t1", "1 tool t3", "0 tool t2"]);
    assert.deepEqual(shown({ ...view, agents: [] }).length, 3);
  });

  test("an item that has not changed has the same entry", () => {
    const item = { kind: "notice", key: "n", level: "info", text: "x", position: undefined } as const;
    const view: View = { ...emptyView(), items: [item] };
    assert.equal(entriesOf(view)[0], entriesOf({ ...view })[0]);
  });
});
