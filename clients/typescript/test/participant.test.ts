// The participant on a scripted server: broken streams, kept answers, handlers that block or fail.
import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { Code } from "@connectrpc/connect";
import {
  type Call,
  type ClientOptions,
  type ConnectionChange,
  CopilotError,
  type CreateOptions,
  defineTool,
  isReason,
  SessionClosedError,
  ToolError,
  WithdrawnError,
} from "@copilot-grpc/client";
import { type CallbackKind, CallbackOutcome } from "@copilot-grpc/client/gen/copilot/bridge/v1/callback_pb";
import { CloseReason } from "@copilot-grpc/client/gen/copilot/bridge/v1/event_service_pb";
import { AttachStream, permission, Queue, refusal, ScriptedServer, toolCall, unknownFrame } from "./scripted.js";

function tool(handler: (call: Call) => unknown) {
  return defineTool({ name: "tool", description: "a tool", handler: (_args, call) => handler(call) });
}

async function open(options: CreateOptions, clientOptions: ClientOptions = {}) {
  const server = new ScriptedServer({}, clientOptions);
  const changes = new Queue<ConnectionChange>();
  const opening = server.client.createSession({ onConnection: (change) => changes.put(change), ...options });
  const stream = await server.attaches.take();
  stream.start();
  return { server, changes, stream, session: await opening };
}

/** The text of a tool's answer. */
async function toolText(stream: AttachStream): Promise<string> {
  const { answer } = await stream.next("answer");
  assert.equal(answer?.answer.case, "tool");
  assert.equal(answer.answer.value.outcome.case, "text");
  return answer.answer.value.outcome.value;
}

async function errorText(stream: AttachStream): Promise<string> {
  const { answer } = await stream.next("answer");
  assert.equal(answer?.answer.case, "error");
  return answer.answer.value.message;
}

describe("start", () => {
  test("the start frame declares tools, handlers and settings", async () => {
    const { stream } = await open({
      id: "chosen",
      tools: [tool(() => "")],
      onPermission: () => "approve",
      onUserInput: () => "yes",
      hooks: { preToolUse: () => undefined },
      onRaw: { "new.method": () => 1 },
      model: "gpt",
      streaming: true,
      graceMs: 1500,
      name: "me",
    });
    const { session, tools, handlers, grace, name } = stream.request;
    assert.equal(session.case, "create");
    assert.equal(session.value.sessionId, "chosen");
    assert.equal(session.value.config?.model, "gpt");
    assert.equal(session.value.config.streaming, true);
    assert.deepEqual(
      tools.map((each) => [each.name, each.parametersJson]),
      [["tool", '{"type":"object","properties":{}}']],
    );
    assert.equal(handlers?.permission, true);
    assert.deepEqual(handlers.kinds, [4, 8]);
    assert.deepEqual(handlers.hookTypes, ["preToolUse"]);
    assert.deepEqual(handlers.methods, ["new.method"]);
    assert.deepEqual([grace?.seconds, grace?.nanos, name], [1n, 500_000_000, "me"]);
  });

  test("progress before the session is open is no start", async () => {
    const server = new ScriptedServer();
    const opening = server.client.createSession();
    const stream = await server.attaches.take();
    stream.frame({ case: "progress", value: { detail: "installing" } });
    stream.start();
    assert.equal((await opening).id, "s1");
  });

  test("callbacks are answered while the session is being opened", async () => {
    const server = new ScriptedServer();
    const opening = server.client.createSession({ onGitHubToken: () => ({ token: "t", expiresInSeconds: 60 }) });
    const stream = await server.attaches.take();
    stream.frame({ case: "opening", value: { participantId: "p1", participantToken: "secret", sessionId: "s1" } });
    stream.callback({ callbackId: "c1", kind: 17, request: { case: "githubToken", value: {} } });
    const { answer } = await stream.next("answer");
    assert.equal(answer?.answer.case, "githubToken");
    stream.start();
    assert.equal((await opening).id, "s1");
  });

  test("a session that cannot be opened ends the handlers that run since its opening", async () => {
    const server = new ScriptedServer();
    const running = new Queue<Call>();
    const onGitHubToken = (_request: unknown, call: Call) => (
      running.put(call),
      new Promise<undefined>(() => undefined)
    );
    const opening = server.client.createSession({ onGitHubToken });
    const stream = await server.attaches.take();
    stream.frame({ case: "opening", value: { participantId: "p1", participantToken: "secret", sessionId: "s1" } });
    stream.callback({ callbackId: "c1", kind: 17, request: { case: "githubToken", value: {} } });
    const call = await running.take();
    stream.end(refusal(Code.FailedPrecondition, "SESSION_REFUSED"));
    await assert.rejects(opening, (error) => isReason(error, "SESSION_REFUSED"));
    assert.ok(isReason(call.signal.reason, "SESSION_REFUSED"));
  });

  test("a refusal of the server is the error of the call", async () => {
    const server = new ScriptedServer();
    const opening = server.client.createSession();
    (await server.attaches.take()).end(refusal(Code.AlreadyExists, "SESSION_EXISTS"));
    await assert.rejects(opening, (error) => isReason(error, "SESSION_EXISTS"));
  });

  test("the signal ends the opening", async () => {
    const server = new ScriptedServer();
    const controller = new AbortController();
    const opening = server.client.createSession({ signal: controller.signal });
    const stream = await server.attaches.take();
    controller.abort(new Error("changed my mind"));
    await assert.rejects(opening, /changed my mind/);
    await stream.aborted;
  });
});

describe("callbacks", () => {
  test("a callback that arrives twice is answered once", async () => {
    let calls = 0;
    const { stream } = await open({ tools: [tool(() => `call ${++calls}`)] });
    stream.callback(toolCall("c1"));
    stream.callback(toolCall("c1"));
    assert.equal(await toolText(stream), "call 1");
    stream.done("c1");
    stream.callback(toolCall("c2"));
    assert.equal(await toolText(stream), "call 2");
    assert.deepEqual(stream.answers, ["c1", "c2"]);
  });

  test("a blocked handler delays no other callback", async () => {
    const never = new Promise(() => undefined);
    const { stream, session } = await open({
      tools: [tool(() => never)],
      onPermission: () => never as never,
      maxConcurrentTools: 2,
    });
    stream.callback(toolCall("c1"));
    stream.callback(permission("c2"));
    stream.callback(toolCall("c3", "unknown tool"));
    const { callbackId, answer } = await stream.next("answer");
    assert.deepEqual([callbackId, answer?.answer.case], ["c3", "abstain"]);
    const closing = session.close();
    await stream.next("leave");
    stream.end();
    await closing;
  });

  test("a withdrawn callback releases its slot, although its handler ignores the signal", async () => {
    const running = new Queue<Call>();
    const handler = (call: Call) => {
      running.put(call);
      return call.callbackId === "c1" ? new Promise(() => undefined) : "second";
    };
    const { stream } = await open({ tools: [tool(handler)], maxConcurrentTools: 1 });
    stream.callback(toolCall("c1"));
    stream.callback(toolCall("c2"));
    const call = await running.take();
    const outcome = { callbackId: "c1", outcome: CallbackOutcome.WITHDRAWN, participantId: "p9" };
    stream.stream({ frame: { case: "callbackResolved", value: outcome } });
    assert.equal(await toolText(stream), "second");
    assert.ok(call.signal.reason instanceof WithdrawnError);
    assert.deepEqual([call.signal.reason.outcome, call.signal.reason.participantId], ["withdrawn", "p9"]);
    assert.deepEqual(stream.answers, ["c2"]);
  });

  /** The text for the model, and the error for the record, of a tool's failure. */
  async function failedTool(stream: AttachStream): Promise<[string, string | undefined]> {
    const { answer } = await stream.next("answer");
    assert.equal(answer?.answer.case, "tool");
    const { outcome } = answer.answer.value;
    assert.equal(outcome.case, "result");
    assert.equal(outcome.value.resultType, "failure");
    return [outcome.value.textResultForLlm, outcome.value.error];
  }

  test("the model reads the message of a ToolError, and of no other exception", async () => {
    const errors = [new Error("broken"), new ToolError("no data today")];
    const { stream } = await open({
      tools: [
        tool(() => {
          throw errors.shift();
        }),
      ],
    });
    stream.callback(toolCall("c1"));
    assert.deepEqual(await failedTool(stream), ["The tool failed.", "broken"]);
    stream.callback(toolCall("c2"));
    assert.deepEqual(await failedTool(stream), ["no data today", "no data today"]);
  });

  test("an exception of another handler is an error", async () => {
    const { stream } = await open({ onPermission: () => Promise.reject(new Error("no database")) });
    stream.callback(permission("c1"));
    assert.equal(await errorText(stream), "The handler failed.");
  });

  test("a value that is no decision never approves", async () => {
    const { stream } = await open({ onPermission: () => "yes" as never });
    stream.callback(permission("c1"));
    assert.equal(await errorText(stream), "The handler failed.");
  });

  test("results that cannot be sent are errors", async () => {
    const results: unknown[] = [() => undefined, "x".repeat(16 << 20)];
    const { stream } = await open({ tools: [tool(() => results.shift())] });
    stream.callback(toolCall("c1"));
    assert.deepEqual(await failedTool(stream), [
      "The tool ran, but its result cannot be encoded as JSON.",
      "a function cannot be the result of a tool",
    ]);
    stream.callback(toolCall("c2"));
    assert.match(await errorText(stream), /has 16777\d+ bytes, more than 15728640/);
  });

  test("an answer that the server refuses becomes an error", async () => {
    const { stream } = await open({ onUserInput: () => "maybe" });
    stream.callback({ callbackId: "c1", kind: 4, request: { case: "userInput", value: { question: "?" } } });
    await stream.next("answer");
    const failure = { code: Code.InvalidArgument, reason: 6, message: "not a choice" };
    stream.frame({ case: "failed", value: { subject: { case: "callbackId", value: "c1" }, failure } });
    assert.match(await errorText(stream), /ANSWER_INVALID: not a choice/);
  });

  test("aroundCallback runs around handlers with the trace context", async () => {
    const seen: unknown[] = [];
    const aroundCallback: ClientOptions["aroundCallback"] = (call, run) => {
      seen.push(call.kind, call.traceContext);
      return run();
    };
    const { stream } = await open({ tools: [tool(() => "traced")] }, { aroundCallback });
    stream.callback({ ...toolCall("c1"), traceparent: "00-1-2-01", tracestate: "a=b" } as never);
    assert.equal(await toolText(stream), "traced");
    assert.deepEqual(seen, ["tool_call", { traceparent: "00-1-2-01", tracestate: "a=b" }]);
  });
});

describe("reconnection", () => {
  test("a cut stream comes back with the token, and the answer of a tool that ran is sent again", async () => {
    let calls = 0;
    const { server, stream, changes } = await open({ tools: [tool(() => `call ${++calls}`)] });
    stream.callback(toolCall("c1"));
    assert.equal(await toolText(stream), "call 1");
    stream.cut();
    const second = await server.attaches.take();
    assert.deepEqual(second.request.session, { case: "joinSessionId", value: "s1" });
    assert.equal(second.request.participantToken, "secret");
    assert.equal(second.request.after?.seq, 5n);
    second.start({ resumed: true, pending: [toolCall("c1")] });
    assert.equal(await toolText(second), "call 1");
    second.done("c1");
    second.callback(toolCall("c2"));
    assert.equal(await toolText(second), "call 2");
    assert.deepEqual(second.answers, ["c1", "c2"]);
    assert.deepEqual([(await changes.take()).type, (await changes.take()).type], ["broken", "restored"]);
  });

  test("a handler continues through a cut, and answers on the new stream", async () => {
    const release = new Queue<string>();
    const { server, stream } = await open({ tools: [tool(() => release.take())] });
    stream.callback(toolCall("c1"));
    stream.cut(Code.Unavailable);
    const second = await server.attaches.take();
    second.start({ resumed: true, pending: [toolCall("c1")] });
    release.put("late");
    assert.equal(await toolText(second), "late");
  });

  test("callbacks that ended in the meantime are withdrawn, and new ones start", async () => {
    const running = new Queue<Call>();
    const handler = (call: Call) => {
      running.put(call);
      return new Promise((_, reject) => call.signal.addEventListener("abort", () => reject(new Error("ended"))));
    };
    const { server, stream } = await open({ tools: [tool(handler)] });
    stream.callback(toolCall("c1"));
    const first = await running.take();
    stream.cut();
    (await server.attaches.take()).start({ resumed: true, pending: [toolCall("c2")] });
    const second = await running.take();
    assert.equal(second.callbackId, "c2");
    assert.equal(first.signal.aborted, true);
    assert.equal(second.signal.aborted, false);
  });

  test("GoAway moves the participant, and closes the old stream afterwards", async () => {
    const { server, stream, session } = await open({ tools: [tool(() => "moved")] });
    stream.stream({ frame: { case: "goAway", value: { reason: 2 } } });
    const second = await server.attaches.take();
    assert.equal(second.request.participantToken, "secret");
    second.start({ resumed: true });
    await stream.aborted;
    second.callback(toolCall("c1"));
    assert.equal(await toolText(second), "moved");
    assert.equal(session.participantId, "p1");
  });

  test("an expired participant joins anew, and reports it", async () => {
    const { server, stream, changes } = await open({});
    stream.cut();
    (await server.attaches.take()).end(refusal(Code.NotFound, "PARTICIPANT_NOT_FOUND"));
    const third = await server.attaches.take();
    assert.equal(third.request.participantToken, "");
    third.start();
    assert.deepEqual([(await changes.take()).type, (await changes.take()).type], ["broken", "participant_expired"]);
  });

  test("a session that is gone ends the participation with the server's reason", async () => {
    const { server, stream, session } = await open({});
    stream.cut();
    (await server.attaches.take()).end(refusal(Code.NotFound, "SESSION_NOT_FOUND"));
    assert.ok(isReason(await session.closed, "SESSION_NOT_FOUND"));
  });

  test("an expired credential ends the participation", async () => {
    const { server, stream, session } = await open({});
    stream.cut();
    (await server.attaches.take()).end(refusal(Code.Unauthenticated, "UNAUTHENTICATED"));
    assert.ok(isReason(await session.closed, "UNAUTHENTICATED"));
  });

  test("CANCELLED of the server is final, a cancelled connection is not", async () => {
    const { server, stream, session } = await open({});
    stream.cut(Code.Canceled);
    const second = await server.attaches.take();
    second.start();
    second.end(refusal(Code.Canceled, "CANCELLED"));
    assert.ok(isReason(await session.closed, "CANCELLED"));
  });

  test("without reconnection a cut is final", async () => {
    const { session, stream } = await open({}, { reconnect: false });
    stream.cut(Code.Unavailable);
    const error = await session.closed;
    assert.ok(error instanceof CopilotError);
    assert.equal(error.code, Code.Unavailable);
  });

  test("a silent server is left", async () => {
    const { server } = await open({}, { reconnect: { heartbeatMs: 10, minBackoffMs: 1, maxBackoffMs: 5 } });
    (await server.attaches.take()).start();
  });

  test("closed streams have a reason, also an unknown one; a draining server is left", async () => {
    const { server, stream, session } = await open({});
    stream.stream({ frame: { case: "closed", value: { reason: CloseReason.DRAINING } } });
    const second = await server.attaches.take();
    second.start();
    second.stream({ frame: { case: "closed", value: { reason: 99 as CloseReason } } });
    const error = await session.closed;
    assert.ok(error instanceof SessionClosedError);
    assert.equal(error.reason as string, "99");
  });

  test("frames, kinds and requests that are newer than the library are ignored", async () => {
    const { stream } = await open({ tools: [tool(() => "still here")], onPermission: () => "approve" });
    stream.stream(unknownFrame());
    stream.send({});
    stream.callback({ callbackId: "c0", kind: 999 as CallbackKind });
    stream.callback(toolCall("c1"));
    assert.equal(await toolText(stream), "still here");
    assert.deepEqual(stream.answers, ["c1"]);
  });
});
