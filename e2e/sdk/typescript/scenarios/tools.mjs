// Tools that the program brings, and the permissions for them and for the CLI's own.
import { existsSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { defineTool } from "@github/copilot-sdk";
import { z } from "zod";
import { check, failure, persisted, Recorder, turn, until } from "../stage.mjs";

const city = { type: "object", properties: { city: { type: "string" } }, required: ["city"] };

function weather(handler, more = {}) {
  return defineTool("get_weather", { description: "What the weather is like", parameters: city, handler, ...more });
}

const results = (seen) => seen.data("tool.execution_complete").map(({ success, result, error, toolDescription }) => ({ success, result, error, toolDescription }));

async function withTool(stage, handler, prompt = 'use get_weather {"city":"Paris"}', more = {}) {
  const called = [];
  const tool = weather((args, invocation) => {
    called.push([args, Object.keys(invocation).sort()]);
    return handler(args, invocation);
  }, more);
  const session = await stage.client().createSession(stage.config({ tools: [tool] }));
  const seen = new Recorder(session);
  const answer = await turn(session, prompt);
  return { answer, called, results: results(seen), persisted: await persisted(session) };
}

export const tool_text = (stage) => withTool(stage, ({ city }) => `sunny in ${city}`);
export const tool_object = (stage) => withTool(stage, () => ({ temperature: 21, wind: null, days: [1, 2] }));
export const tool_nothing = (stage) => withTool(stage, () => undefined);
export const tool_throws = (stage) => withTool(stage, () => { throw new Error("no window here"); });
export const tool_failure = (stage) => withTool(stage, () => ({ textResultForLlm: "cannot see", resultType: "failure", error: "fog" }));
export const tool_denied = (stage) => withTool(stage, () => ({ textResultForLlm: "not for you", resultType: "denied" }));
export const tool_full_result = (stage) => withTool(stage, () => ({
  textResultForLlm: "sunny", resultType: "success", sessionLog: "it was sunny", toolTelemetry: { metrics: { lookups: 1 } },
  binaryResultsForLlm: [{ data: "AAEC", mimeType: "image/png", type: "image", description: "a picture" }],
}));
export const tool_without_permission = (stage) => withTool(stage, () => "sunny", undefined, { skipPermission: true });
export const tools_at_once = async (stage) => {
  const { called, results, persisted, answer, ...rest } = await withTool(stage, ({ city }) => `sunny in ${city}`, "use both");
  // Which of two is first is nobody's to say.
  return { ...rest, answered: answer.startsWith("The tool says: sunny in "), called: called.map(([{ city }]) => city).sort(), results: results.length, persisted: persisted.sort() };
};
export const tool_unknown = (stage) => withTool(stage, () => "sunny", "use no such tool");
export const tool_bad_arguments = (stage) => withTool(stage, () => "sunny", 'use get_weather {"town":7}');
export const tool_large_result = async (stage) => {
  const { answer, ...rest } = await withTool(stage, () => "x".repeat(50_000));
  return { ...rest, results: rest.results.map((r) => [r.success, r.result?.content?.length]), length: answer.length > 1000 };
};

export async function tool_of_zod(stage) {
  const tool = defineTool("get_secret", { description: "Tells a secret", parameters: z.object({ of: z.string(), times: z.number().default(1) }), handler: ({ of }) => `${of} sings` });
  const session = await stage.client().createSession(stage.config({ tools: [tool] }));
  const answer = await turn(session, 'use get_secret {"of":"Ann","times":2}');
  const offered = (await stage.requests())[0].tools.includes("get_secret");
  check(offered, "the tool is offered");
  return { answer, persisted: await persisted(session) };
}

export async function tool_overrides_built_in(stage) {
  const tool = defineTool("view", { description: "Looks at things", parameters: { type: "object", properties: { path: { type: "string" } } }, overridesBuiltInTool: true, handler: () => "mine" });
  const plain = defineTool("view", { description: "Looks at things", handler: () => "mine" });
  const client = stage.client();
  const refused = await failure(() => client.createSession(stage.config({ tools: [plain] })).then(() => "created"));
  const session = await client.createSession(stage.config({ tools: [tool] }));
  return { refused, answer: await turn(session, 'use view {"path":"x"}'), persisted: await persisted(session) };
}

export async function tool_choice(stage) {
  const client = stage.client();
  const tools = [weather(() => "sunny")];
  const offered = {};
  for (const [name, more] of Object.entries({ only: { availableTools: ["view", "get_weather"] }, without: { excludedTools: ["bash", "get_weather"] } })) {
    const session = await client.createSession(stage.config({ tools, ...more }));
    await turn(session, "hello");
    offered[name] = (await stage.requests()).at(-1).tools.sort();
  }
  return offered;
}

export async function tool_aborted(stage) {
  let called;
  const ended = new Promise((done) => {
    called = until("the call", (go) => {
      stage.tool = weather((_, { signal }) => new Promise((answer) => {
        go();
        signal?.addEventListener("abort", () => { done("told"); answer("late"); });
        if (!signal) done("no signal");
      }));
    });
  });
  const session = await stage.client().createSession(stage.config({ tools: [stage.tool] }));
  const seen = new Recorder(session);
  const idle = seen.next("session.idle");
  await session.send({ prompt: 'use get_weather {"city":"Paris"}' });
  await called;
  await session.abort();
  await idle;
  // An older CLI tells nobody.
  const told = await Promise.race([ended, new Promise((done) => { setTimeout(done, 5000, "not told"); })]);
  return { ended: told, after: await turn(session, "hello"), persisted: await persisted(session) };
}

export async function tools_after_resume(stage) {
  const client = stage.client();
  const first = await client.createSession(stage.config({ tools: [weather(() => "sunny")] }));
  await turn(first, 'use get_weather {"city":"Paris"}');
  await first.disconnect();
  const without = await client.resumeSession(first.sessionId, stage.config());
  await turn(without, "hello");
  const bare = (await stage.requests()).at(-1).tools.includes("get_weather");
  await without.disconnect();
  const session = await client.resumeSession(first.sessionId, stage.config({ tools: [weather(() => "rainy")] }));
  return { bare, answer: await turn(session, 'use get_weather {"city":"Paris"}'), persisted: await persisted(session) };
}

async function asking(stage, decide, prompt, more = {}) {
  const asked = [];
  const session = await stage.client().createSession(stage.config({
    onPermissionRequest: (request, invocation) => {
      asked.push({ ...request, sessionId: invocation.sessionId });
      return decide(request);
    },
    ...more,
  }));
  const seen = new Recorder(session);
  const answer = await failure(() => turn(session, prompt));
  return { answer, asked, results: results(seen).map(({ success, error }) => ({ success, error })), decided: seen.data("permission.completed").map((d) => d.result), persisted: await persisted(session) };
}

const shell = 'use bash {"command":"echo out > made.txt","description":"Make a file"}';

export async function permission_shell(stage) {
  const record = await asking(stage, () => ({ kind: "approve-once" }), shell);
  check(readFileSync(join(stage.project, "made.txt"), "utf8") === "out\n", "the command ran");
  return record;
}

export async function permission_denied(stage) {
  const record = await asking(stage, () => ({ kind: "reject", feedback: "not today" }), shell);
  check(!existsSync(join(stage.project, "made.txt")), "the command did not run");
  return record;
}

export const permission_nobody = (stage) => asking(stage, () => ({ kind: "user-not-available" }), shell);
export const permission_throws = (stage) => asking(stage, () => { throw new Error("the guard fell asleep"); }, shell);
export const permission_custom_tool = (stage) => asking(stage, () => ({ kind: "reject" }), 'use get_weather {"city":"Paris"}', { tools: [weather(() => "sunny")] });

export async function permission_files(stage) {
  writeFileSync(join(stage.project, "old.txt"), "old\n");
  const read = await asking(stage, () => ({ kind: "approve-once" }), `use view ${JSON.stringify({ path: join(stage.project, "old.txt") })}`);
  const write = await asking(stage, () => ({ kind: "approve-once" }), `use create ${JSON.stringify({ path: join(stage.project, "new.txt"), file_text: "new\n" })}`);
  check(readFileSync(join(stage.project, "new.txt"), "utf8") === "new\n", "the file was written");
  return { read, write };
}

// A handler without an opinion leaves the request to whoever answers it.
// answers_to_nothing are answers to what nobody has asked.
export async function answers_to_nothing(stage) {
  const { rpc } = await stage.client().createSession(stage.config());
  const requestId = "nobody-asked";
  return {
    tool: await failure(() => rpc.tools.handlePendingToolCall({ requestId, result: "x" })),
    command: await failure(() => rpc.commands.handlePendingCommand({ requestId })),
    failed: await failure(() => rpc.commands.handlePendingCommand({ requestId, error: "x" })),
    elicitation: await failure(() => rpc.ui.handlePendingElicitation({ requestId, result: { action: "cancel" } })),
    input: await failure(() => rpc.ui.handlePendingUserInput({ requestId, response: { answer: "x", wasFreeform: true } })),
    plan: await failure(() => rpc.ui.handlePendingExitPlanMode({ requestId, response: { approved: true } })),
    permission: await failure(() => rpc.permissions.handlePendingPermissionRequest({ requestId, result: { kind: "approve-once" } })),
  };
}

export async function permission_by_rpc(stage) {
  const session = await stage.client().createSession(stage.config({ onPermissionRequest: () => ({ kind: "no-result" }) }));
  const seen = new Recorder(session);
  const idle = seen.next("session.idle");
  await session.send({ prompt: shell });
  const { data } = await seen.first("permission.requested");
  const pending = (await session.rpc.permissions.pendingRequests()).items.map((i) => i.request?.kind ?? Object.keys(i).sort());
  const answer = () => session.rpc.permissions.handlePendingPermissionRequest({ requestId: data.requestId, result: { kind: "approve-once" } });
  const first = await answer();
  await idle;
  return { pending, first, second: await failure(answer), persisted: await persisted(session) };
}

export async function permission_approve_all(stage) {
  const asked = [];
  const session = await stage.client().createSession(stage.config({ onPermissionRequest: (r) => { asked.push(r.kind); return { kind: "approve-once" }; } }));
  const set = await session.rpc.permissions.setApproveAll({ enabled: true });
  await turn(session, shell);
  return { set, asked, mode: await failure(() => session.rpc.permissions.getMode()), persisted: await persisted(session) };
}

export async function permission_for_the_session(stage) {
  const asked = [];
  const session = await stage.client().createSession(stage.config({
    onPermissionRequest: (r) => {
      asked.push(r.kind);
      return { kind: "approve-for-session", approval: { kind: "commands", commandIdentifiers: ["touch"] } };
    },
  }));
  await turn(session, 'use bash {"command":"touch one","description":"One"}');
  await turn(session, 'use bash {"command":"touch two","description":"Two"}');
  return { asked, persisted: await persisted(session) };
}
