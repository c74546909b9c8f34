// The library on the real server with the real CLI and the offline model.
import assert from "node:assert/strict";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import {
  attachBytes,
  attachFile,
  binary,
  type Client,
  connect,
  CopilotError,
  defineTool,
  DirectoryFileSystem,
  failure,
  isGap,
  isReason,
  provideFiles,
  tokenFromFile,
} from "@copilot-grpc/client/node";
import { connect as connectWeb } from "@copilot-grpc/client/web";
import type { TestServer } from "@copilot-grpc/client/testing";
import { z } from "zod";
import { startServer } from "./fixture.js";

const token = "a-token-for-these-tests";
let server: TestServer;
let client: Client;

before(async () => {
  const rules = [
    { when: { user: "bad arguments" }, reply: [{ tool_call: { name: "get_weather", arguments: { city: 7 } } }] },
    { when: { user: "use " }, reply: [{ tool_call: { name: "get_weather", arguments: { city: "Paris" } } }] },
    { when: { tool_result: { name: "get_weather" } }, reply: [{ text: "Result: {{tool_result}}" }] },
    {
      when: { user: "ask me" },
      reply: [{ tool_call: { name: "ask_user", arguments: { question: "Which?", choices: ["a", "b"] } } }],
    },
    { when: { tool_result: { name: "ask_user" } }, reply: [{ text: "Answer: {{tool_result}}" }] },
    { when: { user: "hang" }, reply: [{ text: "wait" }, { wait_for: "never" }] },
    { when: { user: "fail" }, reply: [{ drop: true as const }] },
  ];
  const model = { rules, default: { reply: [{ text: "You said: {{user}}" }] } };
  server = await startServer({
    model,
    args: ["--listen", "127.0.0.1:0", "--token", token, "--web-listen", "127.0.0.1:0"],
  });
  client = await server.connect({ name: "tests" });
});

after(async () => {
  await client.close();
  await server.close();
});

function weather(handler: (args: { city: string }) => unknown) {
  return defineTool({
    name: "get_weather",
    description: "Tells the weather",
    parameters: z.object({ city: z.string() }),
    handler,
  });
}

describe("turns", () => {
  test("send, sendAndWait and run reach the agent", async () => {
    await using session = await client.createSession({ streaming: true });
    assert.equal((await session.sendAndWait("one")).text, "You said: one");
    const turn = session.run("two");
    let text = "";
    for await (const piece of turn.deltas()) text += piece;
    assert.equal(text, "You said: two");
    const outcome = await turn.outcome();
    assert.equal(outcome.status, "completed");
    assert.equal(outcome.orThrow(), outcome);
    const sent = await session.send("three");
    assert.ok(sent.messageId);
    const texts: string[] = [];
    for await (const item of session.events({ from: "beginning", types: ["assistant.message", "session.idle"] })) {
      if (isGap(item)) continue;
      const { data } = item.event ?? {};
      if (data?.case === "assistantMessage") texts.push(data.value.content);
      if (texts.length === 3) break;
    }
    assert.deepEqual(texts, ["You said: one", "You said: two", "You said: three"]);
  });

  test("a signal aborts the turn, and a timeout does not", async () => {
    await using session = await client.createSession();
    const waited = await session.sendAndWait("hang", { timeoutMs: 2_000 }); // the turn begins within that
    assert.equal(waited.status, "timed_out");
    assert.equal((await session.get()).proto.turnRunning, true);
    assert.equal(await session.abort(), true);

    const controller = new AbortController();
    const turn = session.run("hang", { signal: controller.signal });
    for await (const item of turn) {
      if (!isGap(item) && item.event?.eventType === "user.message") break;
    }
    controller.abort(new Error("enough"));
    await assert.rejects(turn.outcome(), /enough/);
    assert.equal((await session.sendAndWait("after")).text, "You said: after");
  });

  test("attachments arrive from bytes and from a file", async () => {
    const folder = await mkdtemp(join(tmpdir(), "client-"));
    try {
      await writeFile(join(folder, "note.txt"), "the note");
      await using session = await client.createSession();
      const attachments = [
        attachBytes(new TextEncoder().encode("bytes"), { mimeType: "text/plain", displayName: "b.txt" }),
      ];
      await session.send("look", { attachments: [...attachments, await attachFile(join(folder, "note.txt"))] });
      for await (const item of session.events({ from: "beginning", types: ["user.message"] })) {
        assert.ok(!isGap(item));
        const { data } = item.event ?? {};
        assert.ok(data?.case === "userMessage");
        const names = data.value.attachments.map(({ variant }) =>
          variant.case === "blob" ? variant.value.displayName : variant.case,
        );
        assert.deepEqual(names, ["b.txt", "note.txt"]);
        break;
      }
    } finally {
      await rm(folder, { recursive: true });
    }
  });
});

describe("tools", () => {
  const results: [string, (args: { city: string }) => unknown, RegExp][] = [
    ["text", ({ city }) => `rain in ${city}`, /^Result: rain in Paris$/],
    ["structured", ({ city }) => ({ city, degrees: 7 }), /^Result: \{"city":"Paris","degrees":7\}$/],
    ["failure", () => failure("the station is closed"), /the station is closed/],
    ["binary", () => binary(new Uint8Array([1, 2, 3]), "image/png", "a picture"), /a picture/],
  ];
  for (const [name, handler, want] of results) {
    test(`a ${name} result reaches the model`, async () => {
      await using session = await client.createSession({ tools: [weather(handler)], onPermission: () => "approve" });
      assert.match((await session.sendAndWait(`use ${name}`)).text, want);
    });
  }

  test("the model does not read the text of an exception", async () => {
    const tools = [weather(() => Promise.reject(new Error("secret of the host")))];
    await using session = await client.createSession({ tools, onPermission: () => "approve" });
    const { text } = await session.sendAndWait("use exception");
    assert.match(text, /^Result: ./);
    assert.doesNotMatch(text, /secret|server\.test/);
  });

  test("invalid arguments are answered in words, and the handler is not called", async () => {
    let calls = 0;
    await using session = await client.createSession({
      tools: [weather(() => calls++)],
      onPermission: () => "approve",
    });
    const { text } = await session.sendAndWait("bad arguments");
    assert.match(text, /The arguments do not fit: city: .*string/);
    assert.equal(calls, 0);
  });

  test("setTools replaces the tools", async () => {
    await using session = await client.createSession({ onPermission: () => "approve" });
    await session.setTools([weather(() => "added later")]);
    assert.equal((await session.sendAndWait("use it")).text, "Result: added later");
  });
});

describe("callbacks", () => {
  test("a rejection reaches the model with its reason", async () => {
    const { reject } = await import("@copilot-grpc/client");
    await using session = await client.createSession({
      tools: [weather(() => "no")],
      onPermission: () => reject("not today"),
    });
    assert.match((await session.sendAndWait("use it")).text, /not today/);
  });

  test("a question of the agent is answered, and hooks run", async () => {
    const hooks: string[] = [];
    await using session = await client.createSession({
      onUserInput: ({ choices }) => choices[1] ?? "",
      onPermission: () => "approve",
      hooks: { preToolUse: ({ toolName }) => void hooks.push(toolName) },
    });
    assert.match((await session.sendAndWait("ask me")).text, /Answer: .*b/);
    assert.deepEqual(hooks, ["ask_user"]);
  });

  test("pending callbacks are listed, and resolved by id", async () => {
    await using session = await client.createSession({
      tools: [weather(() => "done")],
      sessionHandlers: { permission: true },
    });
    await session.send("use it");
    for await (const { frame } of session.frames({ callbacks: true })) {
      if (frame.case !== "callbackRequested" || frame.value.callback?.request.case !== "permission") continue;
      const [callback] = await session.pending();
      assert.equal(callback?.id, frame.value.callback.callbackId);
      await session.resolve(callback?.id ?? "", { answer: { case: "approve", value: {} } });
      break;
    }
    for await (const item of session.events({ types: ["assistant.message"] })) {
      if (!isGap(item) && item.event?.data.case === "assistantMessage" && item.event.data.value.content) {
        assert.equal(item.event.data.value.content, "Result: done");
        break;
      }
    }
  });

  test("a participant provides the session's files", async () => {
    const folder = await mkdtemp(join(tmpdir(), "client-"));
    try {
      const fileSystem = provideFiles(new DirectoryFileSystem(folder));
      await using session = await client.createSession({ fileSystem });
      assert.equal((await session.sendAndWait("hello")).text, "You said: hello");
      const { readdir } = await import("node:fs/promises");
      assert.ok((await readdir(folder, { recursive: true })).some((name) => name.endsWith("events.jsonl")));
      await session.disconnect();
    } finally {
      await rm(folder, { recursive: true });
    }
  });

  test("a participant makes the model requests", async () => {
    const urls: string[] = [];
    await using session = await client.createSession({
      modelTransport: (request) => {
        urls.push(request.url);
        return fetch(request);
      },
    });
    assert.equal((await session.sendAndWait("hello")).text, "You said: hello");
    assert.ok(urls.length > 0);
  });
});

describe("sessions", () => {
  test("create, list, get, resume and delete", async () => {
    const session = await client.createSession({ config: { clientName: "tests" } });
    await session.sendAndWait("remember me");
    await session.disconnect();
    assert.ok((await session.closed) instanceof Error);
    const ids: string[] = [];
    for await (const { id } of client.listSessions()) ids.push(id);
    assert.ok(ids.includes(session.id));
    await using again = await client.resumeSession(session.id);
    assert.equal((await client.getSession(session.id)).id, session.id);
    const types: string[] = [];
    for await (const item of again.history({ types: ["user.message"] }))
      if (!isGap(item)) types.push(item.event?.eventType ?? "");
    assert.deepEqual(types, ["user.message"]);
    await again.delete();
    await assert.rejects(client.resumeSession(session.id), (error) => isReason(error, "SESSION_NOT_FOUND"));
  });

  test("services of copilot.cli.v1 are available for a session", async () => {
    const { SessionNameService } = await import("@copilot-grpc/client/cli");
    await using session = await client.createSession();
    const names = client.use(SessionNameService);
    await names.set({ sessionId: session.id, name: "a name" });
    assert.equal((await names.get({ sessionId: session.id })).name, "a name");
  });

  test("two participants share a session", async () => {
    await using session = await client.createSession({ tools: [weather(() => "shared")] });
    await using other = await client.joinSession(session.id, { name: "other", onPermission: () => "approve" });
    assert.equal((await session.sendAndWait("use it")).text, "Result: shared");
    assert.notEqual(other.participantId, session.participantId);
  });
});

describe("connections", () => {
  test("a token of a file is required over TCP", async () => {
    const [, address = ""] = server.addresses;
    const folder = await mkdtemp(join(tmpdir(), "client-"));
    try {
      const file = join(folder, "token");
      await writeFile(file, "not the right token\n");
      const current = tokenFromFile(file);
      await assert.rejects(connect({ target: address, token: current }), (error) => isReason(error, "UNAUTHENTICATED"));
      await writeFile(file, `${token}\n`);
      await using tcp = await connect({ target: address, token: current });
      assert.ok((await tcp.serverInfo()).version);
    } finally {
      await rm(folder, { recursive: true });
    }
  });

  test("errors have a reason and a field", async () => {
    await assert.rejects(client.createSession({ id: "not valid!" }), (error) => {
      assert.ok(error instanceof CopilotError);
      assert.equal(error.reason, "INVALID_FIELD");
      assert.match(error.field ?? "", /session_id/);
      return true;
    });
  });

  test("without bidirectional streams the session has the tools and handlers", async () => {
    await using web = await server.connect({ participation: "subscribe" });
    const asked: string[] = [];
    await using session = await web.createSession({
      tools: [weather(({ city }) => `web ${city}`)],
      onPermission: ({ kind }) => {
        asked.push(kind);
        return "approve";
      },
    });
    assert.equal((await session.sendAndWait("use it")).text, "Result: web Paris");
    assert.deepEqual(asked, ["custom-tool"]);
  });

  test("over HTTP, as in a browser", async () => {
    await using web = await connectWeb({ baseUrl: server.webUrl, token });
    await using session = await web.createSession({
      tools: [weather(({ city }) => `browser ${city}`)],
      onPermission: () => "approve",
    });
    assert.equal((await session.sendAndWait("use it")).text, "Result: browser Paris");
    await assert.rejects(connectWeb({ baseUrl: server.webUrl, token: "another-token-of-16" }), (error) =>
      isReason(error, "UNAUTHENTICATED"),
    );
  });
});
