// All sessions: what waits in them, their labels and their usage.
import assert from "node:assert/strict";
import { test } from "node:test";
import type { MessageInitShape } from "@bufbuild/protobuf";
import { Code, ConnectError, createRouterTransport, type ServiceImpl } from "@connectrpc/connect";
import {
  answerPermission,
  CallbackService,
  Client,
  CopilotError,
  EventService,
  type PendingChange,
  type SessionInfo,
  SessionService,
} from "@copilot-grpc/client";
import { CallbackKind } from "@copilot-grpc/client/gen/copilot/bridge/v1/callback_pb";
import type { WatchPendingResponseSchema } from "@copilot-grpc/client/gen/copilot/bridge/v1/callback_service_pb";
import { SessionChange } from "@copilot-grpc/client/gen/copilot/bridge/v1/event_service_pb";
import { SessionState } from "@copilot-grpc/client/gen/copilot/bridge/v1/session_pb";
import { UsageGroup } from "@copilot-grpc/client/gen/copilot/bridge/v1/session_service_pb";
import { refusal } from "./scripted.js";

interface Calls {
  callbacks?: Partial<ServiceImpl<typeof CallbackService>>;
  events?: Partial<ServiceImpl<typeof EventService>>;
  sessions?: Partial<ServiceImpl<typeof SessionService>>;
}

function connect(calls: Calls): Client {
  const transport = createRouterTransport(({ service }) => {
    service(CallbackService, calls.callbacks ?? {});
    service(EventService, calls.events ?? {});
    service(SessionService, calls.sessions ?? {});
  });
  return new Client(transport, { name: "me", reconnect: { minBackoffMs: 1, maxBackoffMs: 5 } });
}

type Message = MessageInitShape<typeof WatchPendingResponseSchema>;

const requested = (callbackId: string, sessionId = "s1"): Message => ({
  change: { case: "requested", value: { sessionId, callbackId } },
});
const resolved = (callbackId: string): Message => ({
  change: { case: "resolved", value: { sessionId: "s1", resolved: { callbackId } } },
});
const caughtUp: Message = { change: { case: "caughtUp", value: {} } };

test("the inbox survives resets and broken streams", async () => {
  // "b" ends while the stream is reset, "c" while it is broken.
  const streams: Message[][] = [
    [
      ...[requested("a"), requested("b"), requested("x", "s2"), caughtUp],
      { change: { case: "heartbeat", value: {} } },
      { change: { case: "reset", value: {} } },
      ...[requested("a"), requested("c"), requested("x", "s2"), caughtUp],
      { change: { case: "unmatched", value: { sessionId: "s2" } } },
    ],
    [requested("a")],
    [requested("a"), requested("d"), caughtUp, resolved("a"), resolved("unknown"), requested("last")],
  ];
  const requests: unknown[] = [];
  const client = connect({
    callbacks: {
      async *watchPending({ filter, handle, name, grace }) {
        requests.push([filter?.labels, filter?.owner, handle, name, grace?.seconds]);
        yield* streams[requests.length - 1] ?? [];
        throw new ConnectError("cut", Code.Unavailable);
      },
    },
  });
  const seen: string[] = [];
  const how = (change: PendingChange) =>
    change.state === "waits" ? "waits" : change.resolved ? "resolved" : "gone";
  const options = { handle: true, labels: { team: "red" }, owner: "host", graceMs: 5000 };
  for await (const change of client.watchPending(options)) {
    seen.push(`${change.id} ${how(change)}`);
    if (seen.at(-1) === "last waits") break;
  }
  assert.deepEqual(seen, [
    ...["a waits", "b waits", "x waits", "c waits", "b gone", "x gone"],
    ...["d waits", "c gone", "a resolved", "last waits"],
  ]);
  assert.deepEqual(requests, Array(3).fill([{ team: "red" }, "host", true, "me", 5n]));
});

test("a callback of the inbox is answered in one expression", async () => {
  const answered: unknown[] = [];
  const client = connect({
    callbacks: {
      async *watchPending() {
        yield requested("a");
      },
      resolve({ sessionId, callbackId, answer, requestId }) {
        answered.push([sessionId, callbackId, answer?.answer.case, requestId]);
        if (answered.length === 1) throw refusal(Code.Unavailable, "RUNTIME_LOST");
        if (answered.length > 2) throw refusal(Code.FailedPrecondition, "CALLBACK_RESOLVED");
        return {};
      },
    },
  });
  for await (const change of client.watchPending()) {
    assert.ok(change.state === "waits");
    await change.answer(answerPermission("approve"));
    assert.deepEqual(answered[0], answered[1]); // the same request id
    assert.deepEqual((answered[0] as string[]).slice(0, 3), ["s1", "a", "approve"]);
    await assert.rejects(
      change.answer(answerPermission("reject")),
      (error) => error instanceof CopilotError && error.reason === "CALLBACK_RESOLVED",
    );
    break;
  }
});

test("labels select sessions", async () => {
  const received: unknown[] = [];
  const client = connect({
    sessions: {
      updateLabels({ sessionId, set, remove }) {
        received.push([sessionId, set, remove]);
        return { session: { labels: { team: "red" } } };
      },
      listSessions({ filter, includeHistory }) {
        received.push([filter?.labels, filter?.branch, includeHistory]);
        return {};
      },
    },
    events: {
      async *watchSessions({ filter }) {
        received.push(filter?.labels);
        yield { change: SessionChange.HEARTBEAT };
        yield { change: SessionChange.CREATED };
      },
    },
  });
  assert.deepEqual(await client.session("s1").updateLabels({ team: "red" }, { remove: ["old"] }), { team: "red" });
  for await (const _ of client.listSessions({ labels: { team: "red" }, branch: "main" })) assert.fail();
  for await (const _ of client.listSessions({ includeHistory: true })) assert.fail();
  for await (const { kind } of client.watchSessions({ labels: { team: "red" } })) {
    assert.equal(kind, "created");
    break;
  }
  assert.deepEqual(received, [
    ["s1", { team: "red" }, ["old"]],
    [{ team: "red" }, "main", false],
    [{}, "", true],
    { team: "red" },
  ]);
});

test("sessions, changes and callbacks speak in words", async () => {
  const stored = { sessionId: "s1", state: SessionState.CREDENTIALS_NEEDED, summary: "about", modelId: "m" };
  const client = connect({
    sessions: {
      listSessions: () => ({ sessions: [stored, { sessionId: "s2", name: "mine", summary: "about", state: 99 as SessionState }] }),
      getSession: () => ({ session: stored }),
    },
    events: {
      async *watchSessions() {
        yield { change: SessionChange.DISCONNECTED, session: stored };
      },
    },
    callbacks: {
      listPending: () => ({ callbacks: [{ sessionId: "s1", callbackId: "c1", kind: CallbackKind.TOOL_CALL }] }),
      async *watchPending({ filter }) {
        assert.deepEqual(filter?.kinds, [CallbackKind.PERMISSION, CallbackKind.USER_INPUT]);
        yield requested("a");
      },
    },
  });
  const words = ({ id, state, title, model }: SessionInfo) => [id, state, title, model];
  const first = ["s1", "credentials_needed", "about", "m"];
  const listed: unknown[] = [];
  for await (const info of client.listSessions()) listed.push(words(info));
  assert.deepEqual(listed, [first, ["s2", "99", "mine", ""]]);
  assert.deepEqual(words(await client.getSession("s1")), first);
  assert.deepEqual(words(await client.session("s1").get()), first);
  for await (const { kind, session } of client.watchSessions()) {
    assert.deepEqual([kind, session && words(session)], ["disconnected", first]);
    break;
  }
  const pending = await client.session("s1").pending();
  for await (const callback of client.pending()) pending.push(callback);
  const call = ["c1", "s1", "tool_call"];
  assert.deepEqual(pending.map(({ id, sessionId, kind }) => [id, sessionId, kind]), [call, call]);
  for await (const { kind } of client.watchPending({ kinds: ["permission", "user_input"] })) {
    assert.equal(kind, "unspecified");
    break;
  }
  const misspelt = client.watchPending({ kinds: ["permisson" as "permission"] });
  await assert.rejects(misspelt.next(), /not a kind of callback: "permisson"/);
});

test("usage has typed rows", async () => {
  const received: unknown[] = [];
  const client = connect({
    sessions: {
      getUsage({ groupBy, sessionId, filter, startTime, endTime }) {
        received.push([groupBy, sessionId, filter?.labels, startTime?.seconds, endTime?.seconds]);
        return { rows: [{ day: "2026-11-22", requests: 3n }] };
      },
    },
  });
  const start = new Date("2026-11-22T00:00:00Z");
  const rows = await client.usage({ by: ["day", "owner"], labels: { team: "red" }, start });
  assert.deepEqual([rows[0]?.day, rows[0]?.requests], ["2026-11-22", 3n]);
  await client.usage({ sessionId: "s1" });
  const seconds = BigInt(start.getTime() / 1000);
  assert.deepEqual(received, [
    [[UsageGroup.DAY, UsageGroup.OWNER], "", { team: "red" }, seconds, undefined],
    [[], "s1", {}, undefined, undefined],
  ]);
});
