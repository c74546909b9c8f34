// Stores and streams, with a clock and a screen of their own.
import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { type Callback, CallbackOutcome } from "@copilot-grpc/client/gen/copilot/bridge/v1/callback_pb";
import { SessionChange, type WatchSessionsResponse } from "@copilot-grpc/client/gen/copilot/bridge/v1/event_service_pb";
import { type Session as SessionMessage, SessionState } from "@copilot-grpc/client/gen/copilot/bridge/v1/session_pb";
import { Connection, readForever } from "../src/lib/connection.js";
import {
  applyChanges,
  applyList,
  choices,
  emptyFilter,
  emptyFleet,
  type Fleet,
  matches,
  rowsOf,
  stateOf,
} from "../src/lib/fleet.js";
import { Batch } from "../src/lib/frames.js";
import {
  applyInbox,
  emptyInbox,
  type InboxChange,
  keyOf,
  settledMs,
  waitingBySession,
  waitingOf,
} from "../src/lib/inbox.js";
import { newRequests } from "../src/lib/notify.js";
import { type Bindings, Keys } from "../src/lib/keys.js";
import { applyLog, type LogState } from "../src/lib/serverlog.js";
import { Store } from "../src/lib/store.js";

function session(sessionId: string, fields: Partial<SessionMessage> = {}): SessionMessage {
  const empty = { participants: [], shares: [], modelId: "", name: "", summary: "", owner: "", storageProblem: "" };
  return { ...empty, sessionId, state: SessionState.LOADED, turnRunning: false, ...fields } as unknown as SessionMessage;
}

function change(kind: number, info: SessionMessage): WatchSessionsResponse {
  return { change: kind as SessionChange, session: info } as WatchSessionsResponse;
}

const at = (seconds: number) => ({ seconds: BigInt(seconds), nanos: 0 }) as NonNullable<SessionMessage["updateTime"]>;
const ids = (fleet: Fleet) => [...fleet.sessions.keys()].sort();

describe("store", () => {
  test("subscribers see the value now and each change once", () => {
    const store = new Store(1);
    const seen: number[] = [];
    const end = store.subscribe((value) => seen.push(value));
    store.set(2);
    store.set(2);
    store.update((value) => value + 1);
    end();
    store.set(9);
    assert.deepEqual(seen, [1, 2, 3]);
  });
});

describe("batch", () => {
  test("items of one frame are taken together", () => {
    const frames: (() => void)[] = [];
    const taken: number[][] = [];
    const batch = new Batch<number>(
      (items) => taken.push(items),
      (run) => {
        frames.push(run);
        return () => undefined;
      },
    );
    batch.add(1);
    batch.add(2);
    assert.equal(frames.length, 1);
    frames.shift()?.();
    batch.add(3);
    batch.flush();
    batch.add(4);
    batch.clear();
    for (const run of frames) run();
    assert.deepEqual(taken, [[1, 2], [3]]);
  });
});

describe("connection", () => {
  test("a stream that breaks is read again, and a sign shows it", async () => {
    const connection = new Connection();
    const states: string[] = [];
    connection.state.subscribe((state) => states.push(state));
    const over = new AbortController();
    const taken: number[] = [];
    const waits: number[] = [];
    let opened = 0;
    await readForever<number>({
      name: "numbers",
      connection,
      async *open() {
        opened++;
        yield opened;
        if (opened === 3) over.abort();
        if (opened === 2) throw new Error("broken");
      },
      take: (item) => taken.push(item),
      isFinal: () => false,
      signal: over.signal,
      wait: async (ms) => void waits.push(ms),
    });
    assert.deepEqual(taken, [1, 2, 3]);
    assert.deepEqual(states, ["connecting", "live", "reconnecting", "live", "reconnecting", "live"]);
    assert.equal(waits.length, 2);
    assert.ok(waits.every((ms) => ms >= 125 && ms <= 250), String(waits));
  });

  test("a silent stream is broken", async () => {
    const connection = new Connection();
    const over = new AbortController();
    let opened = 0;
    await readForever<number>({
      name: "numbers",
      connection,
      async *open(signal) {
        if (++opened === 2) return over.abort();
        yield 1;
        await new Promise<void>((resolve) => signal.addEventListener("abort", () => resolve()));
        throw new Error("aborted");
      },
      take: () => undefined,
      isFinal: () => false,
      signal: over.signal,
      silenceMs: 5,
      wait: () => Promise.resolve(),
    });
    assert.equal(opened, 2);
  });

  test("an error that is final ends the reading", async () => {
    const connection = new Connection();
    const reading = readForever<number>({
      name: "numbers",
      connection,
      // eslint-disable-next-line require-yield
      async *open(): AsyncGenerator<number> {
        throw new Error("denied");
      },
      take: () => assert.fail("nothing arrives"),
      isFinal: (error) => (error as Error).message === "denied",
      signal: new AbortController().signal,
    });
    await assert.rejects(reading, /denied/);
  });
});

describe("fleet", () => {
  test("a stream and a list make one fleet", () => {
    let fleet = applyChanges(emptyFleet, [
      change(SessionChange.CURRENT, session("open", { name: "new name" })),
      change(SessionChange.CREATED, session("gone")),
      change(SessionChange.DELETED, session("gone")),
      change(SessionChange.HEARTBEAT, session("")),
    ]);
    assert.deepEqual(ids(fleet), ["open"]);
    const shares = [{ tenant: "b" }] as SessionMessage["shares"];
    fleet = applyList(fleet, [session("open", { name: "old name", shares }), session("stored")], new Set(["open"]));
    assert.deepEqual(ids(fleet), ["open", "stored"]);
    assert.equal(fleet.sessions.get("open")?.name, "new name");
    assert.equal(fleet.sessions.get("open")?.shares, shares);
    assert.ok(fleet.complete);
    // A second list no longer has what was deleted while the stream was broken.
    assert.deepEqual(ids(applyList(fleet, [session("stored")], new Set())), ["stored"]);
    assert.deepEqual(ids(applyChanges(fleet, [change(12, session("open"))])), ["stored"]);
  });

  test("a named session says what it is about, and a search finds that", () => {
    const list = [session("a", { name: "deploy", summary: "Ship it" }), session("b", { summary: "Tidy up" }), session("c")];
    const rows = rowsOf(applyList(emptyFleet, list, new Set()), new Map());
    assert.deepEqual(
      rows.map(({ title, summary }) => [title, summary]),
      [["deploy", "Ship it"], ["Tidy up", ""], ["c", ""]],
    );
    assert.deepEqual(rows.map((row) => matches(row, { ...emptyFilter, search: "ship" })), [true, false, false]);
  });

  test("sessions that wait for people are on top, then those that run", () => {
    const fleet = applyList(
      emptyFleet,
      [
        session("idle-old", { updateTime: at(100) }),
        session("idle-new", { updateTime: at(200) }),
        session("stored", { state: SessionState.STORED, updateTime: at(900) }),
        session("runs", { turnRunning: true, updateTime: at(10) }),
        session("waits", { turnRunning: true, updateTime: at(1) }),
      ],
      new Set(),
    );
    const rows = rowsOf(fleet, new Map([["waits", 2]]));
    assert.deepEqual(
      rows.map(({ id, state }) => `${id} ${state}`),
      ["waits waiting", "runs running", "idle-new idle", "idle-old idle", "stored closed"],
    );
    assert.equal(stateOf(session("x", { state: SessionState.DAMAGED }), 1), "damaged");
    assert.equal(stateOf(session("x", { state: SessionState.CREDENTIALS_NEEDED }), 0), "credentials");
  });

  test("filters and their choices", () => {
    const context = { workingDirectory: "/srv/shop", branch: "main" } as NonNullable<SessionMessage["context"]>;
    const labels = { team: "core" };
    const fleet = applyList(
      emptyFleet,
      [
        session("a", { name: "Fix the cart", modelId: "m1", context, ...({ labels } as object) }),
        session("b", { summary: "Write tests", modelId: "m2" }),
        session("c", { modelId: "m2", owner: "bob" }),
      ],
      new Set(),
    );
    const rows = rowsOf(fleet, new Map());
    const found = (filter: Partial<typeof emptyFilter>) =>
      rows.filter((row) => matches(row, { ...emptyFilter, ...filter })).map(({ id }) => id);
    assert.deepEqual(found({}), ["a", "b", "c"]);
    assert.deepEqual(found({ search: "  CART fix" }), ["a"]);
    assert.deepEqual(found({ search: "team=core" }), ["a"]);
    assert.deepEqual(found({ model: "m2" }), ["b", "c"]);
    assert.deepEqual(found({ label: "team=core" }), ["a"]);
    assert.deepEqual(found({ directory: "/srv/shop" }), ["a"]);
    assert.deepEqual(found({ owner: "bob" }), ["c"]);
    assert.deepEqual(found({ state: "running" }), []);
    assert.deepEqual(choices(rows, ({ model }) => [model]), ["m2", "m1"]);
  });
});

describe("inbox", () => {
  const callback = (sessionId: string, callbackId: string, second: number) =>
    ({ sessionId, callbackId, createTime: { seconds: BigInt(second), nanos: 0 } }) as unknown as Callback;
  const requested = (...of: [string, string, number]): InboxChange => ({ kind: "requested", callback: callback(...of) });
  const resolved = (sessionId: string, callbackId: string): InboxChange => ({
    ...{ kind: "resolved", sessionId, callbackId, outcome: CallbackOutcome.ANSWERED, answeredBy: "bob" },
  });

  test("requests come and go; those that others answered stay for a moment with their name", () => {
    const begun = applyInbox(
      emptyInbox,
      [requested("s", "2", 20), requested("s", "1", 10), requested("t", "3", 30), { kind: "caughtUp" }],
      new Set(),
      0,
    );
    assert.deepEqual(waitingOf(begun).map(({ callbackId }) => callbackId), ["1", "2", "3"]);
    assert.deepEqual([...waitingBySession(begun)], [["s", 2], ["t", 1]]);
    const later = applyInbox(begun, [resolved("s", "1"), resolved("s", "2")], new Set([keyOf("s", "2")]), 1000);
    assert.deepEqual(later.settled.map(({ how, callback: { callbackId } }) => `${callbackId} ${how}`), ["1 answered by bob"]);
    assert.deepEqual(waitingOf(later).map(({ callbackId }) => callbackId), ["3"]);
    assert.deepEqual(applyInbox(later, [], new Set(), 1001 + settledMs).settled, []);
    assert.equal(applyInbox(later, [{ kind: "unmatched", sessionId: "t" }], new Set(), 0).waiting.size, 0);
    const again = applyInbox(later, [{ kind: "reset" }, requested("u", "9", 1)], new Set(), 0);
    assert.deepEqual([again.complete, [...again.waiting.keys()]], [false, [keyOf("u", "9")]]);
  });

  test("only requests after the first ones are worth a notification", () => {
    const first = applyInbox(emptyInbox, [requested("s", "1", 1), { kind: "caughtUp" }], new Set(), 0);
    assert.deepEqual(newRequests(emptyInbox, first), []);
    const second = applyInbox(first, [requested("s", "2", 2)], new Set(), 0);
    assert.deepEqual(newRequests(first, second).map(({ callbackId }) => callbackId), ["2"]);
  });
});

describe("keys", () => {
  const press = (key: string, fields: object = {}) =>
    ({ key, target: null, preventDefault: () => undefined, ...fields }) as unknown as KeyboardEvent;

  test("sequences, layers and fields", () => {
    const keys = new Keys();
    const pressed: string[] = [];
    const record = (...names: string[]): Bindings =>
      Object.fromEntries(names.map((name) => [name, () => pressed.push(name)]));
    keys.push(record("g f", "f", "a"));
    const pop = keys.push({ a: () => pressed.push("page's a") });
    keys.handle(press("g"), 0);
    keys.handle(press("f"), 100);
    keys.handle(press("g"), 1000);
    keys.handle(press("f"), 5000); // too late for the sequence
    keys.handle(press("a"), 6000);
    pop();
    keys.handle(press("a"), 7000);
    keys.handle(press("a", { ctrlKey: true }), 8000);
    keys.handle(press("a", { target: { closest: () => ({}) } }), 9000);
    assert.deepEqual(pressed, ["g f", "f", "page's a", "a"]);
  });
});

describe("the server's log", () => {
  type Frames = Parameters<typeof applyLog>[1];
  const record = (number: number) => ({ frame: { case: "record", value: { number: BigInt(number) } } });
  const caughtUp = { frame: { case: "caughtUp", value: {} } };
  const apply = (log: LogState, ...frames: unknown[]) => applyLog(log, frames as Frames);
  const numbers = ({ records }: LogState) => records.map(({ number }) => Number(number));
  const empty: LogState = { records: [], lost: 0, complete: false };

  test("the newest record is first, and a new stream replaces what was there", () => {
    const log = apply(apply(empty, undefined, record(1), record(2), caughtUp), record(3));
    assert.deepEqual([numbers(log), log.complete], [[3, 2, 1], true]);
    const again = apply(log, undefined, record(2), record(3), caughtUp, record(4));
    assert.deepEqual([numbers(again), again.complete], [[4, 3, 2], true]);
  });

  test("lost records are counted, and old ones leave", () => {
    const many = Array.from({ length: 1200 }, (_, at) => record(at));
    const log = apply(empty, { frame: { case: "gap", value: { lost: 7n } } }, ...many);
    assert.deepEqual([log.lost, log.records.length, numbers(log)[0]], [7, 1000, 1199]);
  });
});
