// Event streams, turns, calls and the participation without bidirectional streams, on a scripted server.
import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { Code, ConnectError } from "@connectrpc/connect";
import {
  attachStream,
  ClosedError,
  defineTool,
  type EventOrGap,
  formatPosition,
  IncompatibleServerError,
  isGap,
  isReason,
  OutcomeError,
  SessionClosedError,
} from "@copilot-grpc/client";
import { GapReason } from "@copilot-grpc/client/gen/copilot/bridge/v1/event_service_pb";
import type { ResolveRequest } from "@copilot-grpc/client/gen/copilot/bridge/v1/callback_service_pb";
import type {
  CreateSessionRequest,
  ImportSessionRequest,
  SendStreamRequest,
} from "@copilot-grpc/client/gen/copilot/bridge/v1/session_service_pb";
import {
  eventFrame,
  permission,
  Queue,
  refusal,
  ScriptedServer,
  type SubscribeFrame,
  toolCall,
  unknownFrame,
} from "./scripted.js";

/** The items of an iteration as text. */
async function collect(items: AsyncIterable<EventOrGap>): Promise<string[]> {
  const seen: string[] = [];
  for await (const item of items) {
    seen.push(
      isGap(item) ? `gap ${formatPosition(item.through)}` : `${formatPosition(item.position)} ${item.event?.eventType}`,
    );
  }
  return seen;
}

const closed: SubscribeFrame = { sessionId: "s1", frame: { case: "closed", value: { reason: 2 } } };

describe("events", () => {
  test("a broken stream continues after the last event, without duplicates", async () => {
    const server = new ScriptedServer();
    const seen = collect(server.client.session("s1").events({ from: "beginning", types: ["a.*"] }));
    const first = await server.subscribes.take();
    assert.equal(first.request.sessions[0]?.start, 1);
    assert.deepEqual(first.request.sessions[0].filter?.types, ["a.*"]);
    first.send(eventFrame(1));
    first.send(eventFrame(2));
    first.cut();
    const second = await server.subscribes.take();
    assert.equal(second.request.sessions[0]?.after?.seq, 2n);
    second.send(eventFrame(2));
    second.send(unknownFrame());
    second.send(eventFrame(3));
    second.end(); // without a last frame: the connection ended
    const third = await server.subscribes.take();
    assert.equal(third.request.sessions[0]?.after?.seq, 3n);
    third.send(eventFrame(4));
    third.send(closed);
    assert.deepEqual(
      await seen,
      ["1/1", "1/2", "1/3", "1/4"].map((at) => `${at} assistant.message`),
    );
  });

  test("missing events are a value, and the stream continues", async () => {
    const server = new ScriptedServer();
    const seen = collect(server.client.session("s1").events());
    const stream = await server.subscribes.take();
    stream.send(eventFrame(1));
    const through = { epoch: 2n, seq: 4n };
    stream.send({ sessionId: "s1", resumeAfter: through, frame: { case: "gap", value: { through, reason: 2 } } });
    stream.cut();
    const second = await server.subscribes.take();
    assert.deepEqual(formatPosition(second.request.sessions[0]?.after), "2/4");
    second.send(closed);
    assert.deepEqual(await seen, ["1/1 assistant.message", "gap 2/4"]);
  });

  for (const ephemeralGaps of [undefined, true]) {
    test(`gaps of ephemeral events with ephemeralGaps: ${ephemeralGaps}`, async () => {
      const server = new ScriptedServer();
      const seen = collect(server.client.session("s1").events({ ephemeralGaps }));
      const stream = await server.subscribes.take();
      const through = { epoch: 1n, seq: 1n };
      const reason = GapReason.EPHEMERAL_LOST;
      stream.send({ sessionId: "s1", resumeAfter: through, frame: { case: "gap", value: { through, reason } } });
      stream.send(eventFrame(2));
      stream.send(closed);
      assert.deepEqual(await seen, [...(ephemeralGaps ? ["gap 1/1"] : []), "1/2 assistant.message"]);
    });
  }

  test("a loop that is left ends the call", async () => {
    const server = new ScriptedServer();
    const frames = server.client.session("s1").events();
    const next = frames.next();
    const stream = await server.subscribes.take();
    stream.send(eventFrame(1));
    await next;
    await frames.return(undefined);
    await stream.aborted;
  });

  test("the signal ends the iteration with its reason", async () => {
    const server = new ScriptedServer();
    const controller = new AbortController();
    const seen = collect(server.client.session("s1").events({ signal: controller.signal }));
    const stream = await server.subscribes.take();
    controller.abort(new Error("stop"));
    await assert.rejects(seen, /stop/);
    await stream.aborted;
  });

  test("a refusal ends the iteration, and a silent stream is opened again", async () => {
    const server = new ScriptedServer({}, { reconnect: { heartbeatMs: 10, minBackoffMs: 1, maxBackoffMs: 5 } });
    const seen = collect(server.client.session("s1").events());
    await server.subscribes.take();
    (await server.subscribes.take()).end(refusal(Code.NotFound, "SESSION_NOT_FOUND"));
    await assert.rejects(seen, (error) => isReason(error, "SESSION_NOT_FOUND"));
  });

  test("closing the session ends its iterations", async () => {
    const server = new ScriptedServer();
    const session = server.client.session("s1");
    const seen = collect(session.events());
    (await server.subscribes.take()).send(eventFrame(1));
    await session.close();
    assert.ok((await seen).length <= 1);
  });
});

describe("turns", () => {
  test("a turn that breaks continues with the same request id", async () => {
    const server = new ScriptedServer();
    const turn = server.client.session("s1").run("go");
    const seen = collect(turn);
    const first = await server.runs.take();
    first.send({ frame: { case: "started", value: { messageId: "m1" } } });
    first.send({ frame: { case: "stream", value: eventFrame(1) } });
    first.cut(Code.Internal);
    const second = await server.runs.take();
    assert.equal(second.request.requestId, first.request.requestId);
    assert.equal(second.request.prompt?.text, "go");
    second.send({ frame: { case: "progress", value: { detail: "starting" } } });
    second.send({ frame: { case: "started", value: { messageId: "m1" } } });
    second.send({ frame: { case: "stream", value: eventFrame(1) } });
    second.send({ frame: { case: "stream", value: eventFrame(2) } });
    const error = { errorType: "query", message: "no model", statusCode: 500 };
    second.send({ frame: { case: "outcome", value: { status: 3, error } } });
    assert.deepEqual(await seen, ["1/1 assistant.message", "1/2 assistant.message"]);
    const outcome = await turn.outcome();
    assert.equal(outcome.status, "failed");
    assert.equal(outcome.messageId, "m1");
    assert.deepEqual(outcome.error, { type: "query", message: "no model", statusCode: 500, reason: undefined });
    assert.throws(() => outcome.orThrow(), OutcomeError);
  });

  test("the signal aborts the turn, unless it is detached", async () => {
    for (const detach of [false, true]) {
      const aborts = new Queue<string>();
      const server = new ScriptedServer({
        sessions: { abort: ({ sessionId }) => (aborts.put(sessionId), { turnWasRunning: true }) },
      });
      const controller = new AbortController();
      const outcome = server.client.session("s1").run("go", { signal: controller.signal, detach }).outcome();
      const stream = await server.runs.take();
      stream.send({ frame: { case: "started", value: { messageId: "m1" } } });
      controller.abort(new Error("stop"));
      await assert.rejects(outcome, /stop/);
      assert.equal(aborts.size, detach ? 0 : 1);
    }
  });

  test("an unknown status is not taken for success", async () => {
    const server = new ScriptedServer();
    const outcome = server.client.session("s1").run("go").outcome();
    (await server.runs.take()).send({ frame: { case: "outcome", value: { status: 77 as never } } });
    assert.equal((await outcome).status, "unspecified");
  });
});

describe("calls", () => {
  test("idempotent calls are repeated with the same request id", async () => {
    const ids: string[] = [];
    const server = new ScriptedServer({
      sessions: {
        send: ({ requestId }) => {
          ids.push(requestId);
          if (ids.length === 1) throw new ConnectError("the connection broke", Code.Unavailable);
          if (ids.length === 2) throw new ConnectError("the stream was reset", Code.Canceled);
          return { messageId: "m1" };
        },
      },
    });
    assert.equal((await server.client.session("s1").send("hello")).messageId, "m1");
    assert.equal(new Set(ids).size, 1);
    assert.equal(ids.length, 3);
  });

  test("streams of attachments are sent in chunks", async () => {
    const pieces: SendStreamRequest["piece"][] = [];
    const server = new ScriptedServer({
      sessions: {
        async sendStream(requests) {
          for await (const { piece } of requests) pieces.push(piece);
          return { messageId: "m1" };
        },
      },
    });
    const source = [new Uint8Array(300 << 10), new Uint8Array(1)];
    await server.client
      .session("s1")
      .send("look", { attachments: [attachStream(source, { mimeType: "application/pdf" })] });
    const [request, ...chunks] = pieces;
    assert.equal(request?.case, "request");
    assert.equal(request.value.prompt?.attachments[0]?.variant.case, "blob");
    assert.deepEqual(
      chunks.map((chunk) => (chunk.case === "chunk" ? [chunk.value.attachment, chunk.value.data.length] : [])),
      [
        [0, 256 << 10],
        [0, 44 << 10],
        [0, 1],
      ],
    );
  });

  test("archives are read and sent in chunks", async () => {
    const pieces: ImportSessionRequest["piece"][] = [];
    const server = new ScriptedServer({
      sessions: {
        async *exportSession({ sessionId }) {
          yield { piece: { case: "header", value: { sizeBytes: 3n } } };
          yield { piece: { case: "chunk", value: new Uint8Array([1, 2]) } };
          if (sessionId === "whole") yield { piece: { case: "chunk", value: new Uint8Array([3]) } };
        },
        async importSession(requests) {
          for await (const { piece } of requests) pieces.push(piece);
          return { originSessionId: "s1" };
        },
      },
    });
    const made = await server.client.importSession(server.client.exportSession("whole"), { sessionId: "s2" });
    assert.equal(made.originSessionId, "s1");
    const [header, ...chunks] = pieces;
    assert.equal(header?.case === "header" && header.value.sessionId, "s2");
    assert.deepEqual(
      chunks.map((chunk) => (chunk.case === "chunk" ? [...chunk.value] : [])),
      [[1, 2], [3]],
    );
    await assert.rejects(server.client.importSession(server.client.exportSession("cut")), {
      code: Code.DataLoss,
      message: /cut off/,
    });
  });

  test("a closed client refuses calls", async () => {
    const server = new ScriptedServer();
    await server.client.close();
    await assert.rejects(server.client.createSession(), ClosedError);
  });

  test("other servers and other versions are refused", async () => {
    const foreign = new ScriptedServer({
      runtimes: {
        getServerInfo: () => {
          throw new ConnectError("unknown service", Code.Unimplemented);
        },
      },
    });
    await assert.rejects(foreign.client.check(), IncompatibleServerError);
    for (const [version, ok] of [
      ["0.1.0", true],
      ["v0.9.3-rc.1", true],
      ["4eb023ac", true],
      ["0.0.9", false],
      ["1.0.0", false],
    ] as const) {
      const server = new ScriptedServer({ runtimes: { getServerInfo: () => ({ version }) } });
      if (ok) assert.equal((await server.client.check()).version, version);
      else await assert.rejects(server.client.check(), /has version .*: update the/);
    }
  });
});

describe("without bidirectional streams", () => {
  function open(onResolve: (request: ResolveRequest) => void = () => undefined) {
    const created = new Queue<CreateSessionRequest>();
    const server = new ScriptedServer(
      {
        sessions: {
          createSession: (request) => (
            created.put(request),
            { session: { sessionId: "s1", position: { epoch: 1n, seq: 5n } } }
          ),
          getSession: ({ sessionId }) => ({ session: { sessionId } }),
        },
        callbacks: { resolve: (request) => (onResolve(request), {}) },
      },
      { participation: "subscribe" },
    );
    return { server, created };
  }

  test("tools and handlers belong to the session, and answers are resolved", async () => {
    const resolved = new Queue<ResolveRequest>();
    const { server, created } = open((request) => resolved.put(request));
    const tool = defineTool({ name: "tool", description: "", handler: () => "web" });
    const opening = server.client.createSession({ tools: [tool], onPermission: () => "approve-for-session" });
    const request = await created.take();
    assert.deepEqual(
      request.config?.tools.map(({ name }) => name),
      ["tool"],
    );
    assert.equal(request.handlers?.permission, true);
    const stream = await server.subscribes.take();
    assert.deepEqual([stream.request.callbacks, stream.request.sessions[0]?.filter?.excludeAll], [true, true]);
    stream.send({ sessionId: "s1", frame: { case: "started", value: { pendingCallbacks: [toolCall("c1")] } } });
    const session = await opening;
    assert.equal((await resolved.take()).callbackId, "c1");
    const callback = permission("c2");
    stream.send({ sessionId: "s1", frame: { case: "callbackRequested", value: { callback, offered: false } } });
    const answered = await resolved.take();
    assert.equal(answered.callbackId, "c2");
    assert.equal(answered.answer?.answer.case, "permission");
    await session.close();
    await stream.aborted;
  });

  test("a broken stream continues, and the answer of a tool that ran is resolved once more", async () => {
    let [calls, attempts] = [0, 0];
    const resolved = new Queue<ResolveRequest>();
    const { server } = open((request) => {
      if (++attempts === 1) throw new ConnectError("the connection broke", Code.Internal);
      resolved.put(request);
    });
    const tool = defineTool({ name: "tool", description: "", handler: () => `call ${++calls}` });
    const opening = server.client.createSession({ tools: [tool] });
    const first = await server.subscribes.take();
    first.send({ sessionId: "s1", frame: { case: "started", value: {} } });
    const session = await opening;
    first.send({ sessionId: "s1", frame: { case: "callbackRequested", value: { callback: toolCall("c1") } } });
    assert.equal((await resolved.take()).callbackId, "c1");
    first.cut();
    const second = await server.subscribes.take();
    assert.equal(second.request.sessions[0]?.after?.seq, 5n);
    second.send({ sessionId: "s1", frame: { case: "started", value: {} } });
    second.send(closed);
    assert.ok((await session.closed) instanceof SessionClosedError);
    assert.deepEqual([calls, attempts], [1, 2]);
  });

  test("what requires bidirectional streams is refused", async () => {
    const { server } = open();
    await assert.rejects(server.client.createSession({ modelTransport: fetch }), /require bidirectional streams/);
  });
});
