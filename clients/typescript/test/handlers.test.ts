// What each handler's result becomes, over an Attach stream of a scripted server.
import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { toJson } from "@bufbuild/protobuf";
import {
  abstain,
  type CreateOptions,
  decision,
  type FileSystem,
  provideFiles,
  reject,
} from "@copilot-grpc/client";
import { CallbackKind } from "@copilot-grpc/client/gen/copilot/bridge/v1/callback_pb";
import { AnswerSchema } from "@copilot-grpc/client/gen/copilot/bridge/v1/callback_pb";
import { type AttachStream, type CallbackInit, permission, ScriptedServer } from "./scripted.js";

type Request = NonNullable<Exclude<CallbackInit, { $typeName: string }>["request"]>;

async function open(options: CreateOptions): Promise<AttachStream> {
  const server = new ScriptedServer();
  const opening = server.client.createSession(options);
  const stream = await server.attaches.take();
  stream.start();
  await opening;
  return stream;
}

/** The answer to a request, as JSON. */
async function answerTo(options: CreateOptions, request: Request): Promise<unknown> {
  const stream = await open(options);
  const name = (request.case ?? "").replaceAll(/[A-Z]/g, (letter) => `_${letter}`).toUpperCase();
  const kind = CallbackKind[name as keyof typeof CallbackKind];
  stream.callback({ callbackId: "c1", sessionId: "s1", participantIds: ["p1"], kind, request });
  const { answer } = await stream.next("answer");
  assert.ok(answer);
  return toJson(AnswerSchema, answer);
}

const question: Request = { case: "userInput", value: { question: "?", choices: ["a", "b"] } };
const form: Request = { case: "elicitation", value: { message: "name" } };
const plan: Request = { case: "exitPlanMode", value: { summary: "plan", recommendedAction: "autopilot" } };
const limit: Request = { case: "autoModeSwitch", value: {} };
const command: Request = { case: "command", value: { commandName: "deploy", args: "now" } };
const provider: Request = { case: "providerToken", value: { providerName: "azure" } };
const github: Request = { case: "githubToken", value: { host: "github.com" } };
const sections: Request = {
  case: "systemMessageTransform",
  value: { sections: { tone: { content: "long" }, role: { content: "dev" } } },
};
const hook = (data: object): Request => ({ case: "hook", value: { hookType: "x", data } }) as Request;
const preTool = hook({ case: "preToolUse", value: { toolName: "bash" } });
const raw: Request = { case: "raw", value: { method: "new.method", paramsJson: '{"a":1}' } };
const shell = permission("c1") as Exclude<CallbackInit, { $typeName: string }>;

const table: [string, CreateOptions, Request, unknown][] = [
  ["a choice", { onUserInput: ({ choices }) => choices[1] ?? "" }, question, { userInput: { answer: "b" } }],
  ["free text", { onUserInput: () => "c" }, question, { userInput: { answer: "c", wasFreeform: true } }],
  ["no answer", { onUserInput: () => abstain }, question, { abstain: {} }],
  [
    "a filled form",
    { onElicitation: () => ({ accept: { name: "Ada", age: 36, ok: true, tags: ["x"] } }) },
    form,
    {
      elicitation: {
        action: "UI_ELICITATION_RESPONSE_ACTION_ACCEPT",
        content: {
          name: { stringValue: "Ada" },
          age: { doubleValue: 36 },
          ok: { boolValue: true },
          tags: { list: { items: ["x"] } },
        },
      },
    },
  ],
  [
    "a declined form",
    { onElicitation: () => "decline" },
    form,
    { elicitation: { action: "UI_ELICITATION_RESPONSE_ACTION_DECLINE" } },
  ],
  [
    "an approved plan",
    { onExitPlanMode: () => true },
    plan,
    { exitPlanMode: { approved: true, selectedAction: "autopilot" } },
  ],
  [
    "a rejected plan",
    { onExitPlanMode: () => ({ approved: false, feedback: "no" }) },
    plan,
    { exitPlanMode: { feedback: "no" } },
  ],
  [
    "a mode switch",
    { onAutoModeSwitch: () => "yes-always" },
    limit,
    { autoModeSwitch: { response: "CALLBACK_AUTO_MODE_SWITCH_SERVICE_REQUEST_RESPONSE_RESPONSE_YES_ALWAYS" } },
  ],
  ["a command", { onCommand: () => undefined }, command, { command: {} }],
  [
    "a field of a form that is none",
    { onElicitation: () => ({ accept: { name: null as unknown as string } }) },
    form,
    { error: { message: "The handler failed." } },
  ],
  ["a command that fails", { onCommand: () => Promise.reject(new Error("no")) }, command, { error: { message: "no" } }],
  [
    "a provider's token",
    { onProviderToken: ({ providerName }) => `${providerName}-token` },
    provider,
    { providerToken: { token: "azure-token" } },
  ],
  [
    "a GitHub token",
    { onGitHubToken: ({ host }) => ({ token: host, expiresInSeconds: 60 }) },
    github,
    { githubToken: { token: { accessToken: "github.com", expiresIn: "60" } } },
  ],
  ["no GitHub token", { onGitHubToken: () => undefined }, github, { githubToken: { cancelled: {} } }],
  [
    "sections of the system message",
    { onSystemMessage: () => ({ tone: "brief" }) },
    sections,
    { systemMessageTransform: { sections: { tone: { content: "brief" }, role: { content: "dev" } } } },
  ],
  ["a hook without an opinion", { hooks: { preToolUse: () => undefined } }, preTool, { hook: {} }],
  [
    "a hook that denies",
    { hooks: { preToolUse: ({ toolName }) => (toolName === "bash" ? "deny" : "allow") } },
    preTool,
    { hook: { preToolUse: { permissionDecision: "HOOK_PERMISSION_DECISION_DENY" } } },
  ],
  [
    "a hook with an output",
    { hooks: { preToolUse: () => ({ additionalContext: "careful" }) } },
    preTool,
    { hook: { preToolUse: { additionalContext: "careful" } } },
  ],
  [
    "a hook of another type",
    { hooks: { preToolUse: () => "deny" } },
    hook({ case: "sessionEnd", value: {} }),
    { hook: {} },
  ],
  [
    "a callback without a type",
    { onRaw: { "new.method": (params) => ({ got: params }) } },
    raw,
    { raw: { resultJson: '{"got":{"a":1}}' } },
  ],
  [
    "any other kind",
    { handlers: { canvasOpen: ({ canvasId }) => ({ url: `https://example.com/${canvasId}` }) } },
    { case: "canvasOpen", value: { canvasId: "chart" } },
    { canvasOpen: { url: "https://example.com/chart" } },
  ],
  [
    "a handler without a result",
    { handlers: { canvasOpen: () => undefined as never } },
    { case: "canvasOpen", value: {} },
    { error: { message: "The handler failed." } },
  ],
  ["an approval", { onPermission: () => "approve" }, shell.request as Request, { approve: {} }],
  [
    "an approval for the session",
    { onPermission: () => "approve-for-session" },
    shell.request as Request,
    { permission: { approveForSession: {} } },
  ],
  ["a rejection", { onPermission: () => "reject" }, shell.request as Request, { reject: {} }],
  [
    "a rejection with a reason",
    { onPermission: () => reject("why") },
    shell.request as Request,
    { permission: { reject: { feedback: "why" } } },
  ],
  [
    "no user",
    { onPermission: () => "user-not-available" },
    shell.request as Request,
    { permission: { userNotAvailable: {} } },
  ],
  [
    "any other decision",
    { onPermission: () => decision({ variant: { case: "approveReadOnlyForSession", value: {} } }) },
    shell.request as Request,
    { permission: { approveReadOnlyForSession: {} } },
  ],
  ["no decision", { onPermission: () => abstain }, shell.request as Request, { abstain: {} }],
];

describe("answers", () => {
  for (const [name, options, request, want] of table) {
    test(name, async () => assert.deepEqual(await answerTo(options, request), want));
  }

  test("two handlers of a kind are refused", async () => {
    const server = new ScriptedServer();
    const options: CreateOptions = { onUserInput: () => "", handlers: { userInput: () => ({}) } };
    await assert.rejects(server.client.createSession(options), /two handlers answer userInput/);
  });
});

describe("files of a participant", () => {
  const missing = () => Promise.reject(Object.assign(new Error("no such file"), { code: "ENOENT" }));
  const files: FileSystem = {
    readFile: (path) => (path === "/a" ? Promise.resolve(new TextEncoder().encode("text")) : missing()),
    stat: (path) =>
      path === "/a"
        ? Promise.resolve({ isFile: true, isDirectory: false, size: 4, modifiedAt: new Date(5000) })
        : missing(),
    readdir: () => Promise.resolve([{ name: "a", isDirectory: false }]),
    writeFile: () => Promise.reject(new Error("disk full")),
    appendFile: () => Promise.resolve(),
    mkdir: () => Promise.resolve(),
    rename: missing,
    rm: missing,
  };
  const enoent = { code: "SESSION_FS_ERROR_CODE_ENOENT", message: "no such file" };
  const cases: [string, Request, unknown][] = [
    ["reads", { case: "fsReadFile", value: { path: "/a" } }, { fsReadFile: { content: "text" } }],
    ["reads bytes", { case: "fsReadFileBytes", value: { path: "/a" } }, { fsReadFileBytes: { content: "dGV4dA==" } }],
    ["a missing file", { case: "fsReadFile", value: { path: "/b" } }, { fsReadFile: { error: enoent } }],
    ["exists", { case: "fsExists", value: { path: "/a" } }, { fsExists: { exists: true } }],
    ["does not exist", { case: "fsExists", value: { path: "/b" } }, { fsExists: {} }],
    ["lists", { case: "fsReaddir", value: { path: "/" } }, { fsReaddir: { entries: ["a"] } }],
    ["appends", { case: "fsAppendFile", value: { path: "/a", content: "x" } }, { fsAppendFile: {} }],
    [
      "a full disk",
      { case: "fsWriteFile", value: { path: "/a" } },
      { fsWriteFile: { value: { code: "SESSION_FS_ERROR_CODE_UNKNOWN", message: "disk full" } } },
    ],
    ["removes by force", { case: "fsRm", value: { path: "/b", force: true } }, { fsRm: {} }],
    ["removes a missing file", { case: "fsRm", value: { path: "/b" } }, { fsRm: { value: enoent } }],
    ["moves a missing file", { case: "fsRename", value: { src: "/b", dest: "/c" } }, { fsRename: { value: enoent } }],
  ];
  for (const [name, request, want] of cases) {
    test(name, async () => assert.deepEqual(await answerTo({ fileSystem: provideFiles(files) }, request), want));
  }

  test("the session is created with the file system's settings", async () => {
    const stream = await open({ fileSystem: provideFiles(files, { statePath: "/state" }) });
    assert.equal(stream.request.session.case, "create");
    const { sessionFs } = stream.request.session.value.runtimeProfile ?? {};
    assert.deepEqual([sessionFs?.initialDirectory, sessionFs?.statePath, sessionFs?.binary], ["/", "/state", true]);
  });
});

describe("model requests", () => {
  test("a request is relayed in parts, and a failure ends the response", async () => {
    const bodies: string[] = [];
    const stream = await open({
      modelTransport: async (request) => {
        bodies.push(await request.text());
        if (request.url.endsWith("/fail")) throw new Error("no route");
        return new Response("answer", { status: 201, headers: { "content-type": "text/plain" } });
      },
    });
    const start = (requestId: string, url: string): CallbackInit => {
      const value = { requestId, method: "POST", url, headers: { "x-a": { items: ["1"] } } };
      return {
        callbackId: `start ${requestId}`,
        kind: CallbackKind.MODEL_REQUEST_START,
        request: { case: "modelRequestStart", value },
      };
    };
    const chunk = (requestId: string, data: string): CallbackInit => {
      const value = { requestId, data, end: true };
      return {
        callbackId: `chunk ${requestId}`,
        kind: CallbackKind.MODEL_REQUEST_CHUNK,
        request: { case: "modelRequestChunk", value },
      };
    };
    stream.callback(start("r1", "http://model/ok"));
    await stream.next("answer");
    stream.callback(chunk("r1", "question"));
    await stream.next("answer");
    const head = (await stream.next("modelResponse")).part;
    assert.ok(head.case === "head");
    assert.deepEqual([head.value.status, head.value.headers["content-type"]?.items], [201, ["text/plain"]]);
    const body = (await stream.next("modelResponse")).part;
    assert.ok(body.case === "chunk" && body.value.data.case === "binary");
    assert.equal(new TextDecoder().decode(body.value.data.value), "answer");
    const end = (await stream.next("modelResponse")).part;
    assert.ok(end.case === "chunk" && end.value.end);

    stream.callback(start("r2", "http://model/fail"));
    await stream.next("answer");
    stream.callback(chunk("r2", "again"));
    await stream.next("answer");
    const failed = (await stream.next("modelResponse")).part;
    assert.equal(failed.case === "chunk" && failed.value.error?.message, "no route");
    assert.deepEqual(bodies, ["question", "again"]);
  });
});
