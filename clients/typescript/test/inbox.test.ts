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
  SessionChange,
  SessionService,
} from "@copilot-grpc/client";
import type { WatchPendingResponseSchema } from "@copilot-grpc/client/gen/copilot/bridge/v1/callback_service_pb";
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
    seen.push(`${change.callback.callbackId} ${how(change)}`);
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
      listSessions({ filter }) {
        received.push([filter?.labels, filter?.branch]);
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
  for await (const { change } of client.watchSessions({ labels: { team: "red" } })) {
    assert.equal(change, SessionChange.CREATED);
    break;
  }
  assert.deepEqual(received, [
    ["s1", { team: "red" }, ["old"]],
    [{ team: "red" }, "main"],
    { team: "red" },
  ]);
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
  const rows = await client.getUsage({ by: ["day", "owner"], labels: { team: "red" }, start });
  assert.deepEqual([rows[0]?.day, rows[0]?.requests], ["2026-11-22", 3n]);
  await client.getUsage({ sessionId: "s1" });
  const seconds = BigInt(start.getTime() / 1000);
  assert.deepEqual(received, [
    [[UsageGroup.DAY, UsageGroup.OWNER], "", { team: "red" }, seconds, undefined],
    [[], "s1", {}, undefined, undefined],
  ]);
});
