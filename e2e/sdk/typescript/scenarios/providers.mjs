// What a program provides: tokens, files, answers of the model, canvases.
import { CanvasError, CopilotRequestHandler, createCanvas } from "@github/copilot-sdk";
import { check, eventually, failure, persisted, Recorder, turn } from "../stage.mjs";
import { MemoryFiles } from "../files.mjs";

export async function bearer_token(stage) {
  const asked = [];
  const { apiKey: _, ...provider } = stage.provider({ bearerTokenProvider: async (args) => { asked.push(args); return `token-${asked.length}`; } });
  const session = await stage.client().createSession(stage.config({ provider }));
  await turn(session, "hello");
  await turn(session, "again");
  return { asked, used: (await stage.requests()).map((r) => r.header.Authorization), persisted: await persisted(session) };
}

export async function bearer_token_refused(stage) {
  const { apiKey: _, ...provider } = stage.provider({ bearerTokenProvider: async () => { throw new Error("the vault is shut"); } });
  const session = await stage.client().createSession(stage.config({ provider }));
  return { outcome: await failure(() => turn(session, "hello")), persisted: await persisted(session) };
}

export async function named_providers(stage) {
  const { modelId, ...named } = stage.provider({ name: "ours" });
  const { provider: _, ...config } = stage.config({ model: "ours/small", providers: [named], models: [{ id: "small", provider: "ours", wireModel: "offline-model", maxContextWindowTokens: 50_000 }] });
  const session = await stage.client().createSession(config);
  return { answer: await failure(() => turn(session, "hello")), asked: (await stage.requests()).map((r) => r.model), current: await session.rpc.model.getCurrent() };
}

const wires = {
  responses: (stage) => stage.provider({ wireApi: "responses" }),
  anthropic: (stage) => ({ type: "anthropic", baseUrl: stage.model, apiKey: "offline" }),
};

async function wire(stage, name) {
  const session = await stage.client().createSession(stage.config({ streaming: true, provider: wires[name](stage) }));
  const seen = new Recorder(session);
  const answer = await turn(session, "write five words");
  return { answer, api: (await stage.requests()).map((r) => r.api), deltas: seen.of("assistant.message_delta").length, persisted: await persisted(session) };
}

export const wire_responses = (stage) => wire(stage, "responses");
export const wire_anthropic = (stage) => wire(stage, "anthropic");

class Answering extends CopilotRequestHandler {
  asked = [];
  constructor(answer) {
    super();
    this.answer = answer;
  }
  async sendRequest(request, context) {
    this.asked.push([request.method, new URL(request.url).pathname.replace(/.*\/v1/, "/v1"), context.transport, typeof context.sessionId]);
    return this.answer ? this.answer(request, context) : super.sendRequest(request, context);
  }
}

async function inferred(stage, answer) {
  const requestHandler = new Answering(answer);
  const session = await stage.client({ requestHandler }).createSession(stage.config({ streaming: true }));
  const seen = new Recorder(session);
  const told = await failure(() => turn(session, "write five words"));
  return {
    told, asked: requestHandler.asked.filter(([method]) => method === "POST"), deltas: seen.of("assistant.message_delta").length,
    errors: seen.data("session.error").map((e) => [e.errorType, e.statusCode, e.message]), persisted: await persisted(session),
  };
}

const chunk = (content, finish) => `data: ${JSON.stringify({ id: "x", object: "chat.completion.chunk", created: 1, model: "m", choices: [{ index: 0, delta: { content }, finish_reason: finish ?? null }] })}\n\n`;

export const model_forwarded = (stage) => inferred(stage);
export const model_answered = (stage) => inferred(stage, () => new Response(chunk("From ") + chunk("the program.", "stop") + "data: [DONE]\n\n", { headers: { "content-type": "text/event-stream" } }));
export const model_refused = (stage) => inferred(stage, () => new Response(JSON.stringify({ error: { message: "not this" } }), { status: 400, headers: { "content-type": "application/json" } }));

export async function model_aborted(stage) {
  let told;
  const cancelled = new Promise((done) => { told = done; });
  const requestHandler = new Answering((_, { signal }) => new Promise((_, fail) => {
    signal.addEventListener("abort", () => { told("told"); fail(new Error("aborted")); });
  }));
  const session = await stage.client({ requestHandler }).createSession(stage.config());
  const seen = new Recorder(session);
  const idle = seen.next("session.idle");
  await session.send({ prompt: "hello" });
  await eventually("the request", () => requestHandler.asked.length > 0);
  await session.abort();
  await idle;
  return { cancelled: await cancelled, persisted: await persisted(session) };
}

const filesConfig = { initialCwd: "/", sessionStatePath: "/state", conventions: "posix" };

export async function session_files(stage) {
  const files = new MemoryFiles();
  const client = stage.client({ sessionFs: filesConfig });
  const session = await client.createSession(stage.config({ createSessionFsProvider: () => files }));
  const answer = await turn(session, "hello");
  await session.rpc.plan.update({ content: "# In memory\n" });
  const plan = await session.rpc.plan.read();
  await session.disconnect();
  const kept = await eventually("the events", () => files.names().find((n) => n.endsWith("events.jsonl")));
  const again = await client.resumeSession(session.sessionId, stage.config({ createSessionFsProvider: () => files }));
  return { answer, plan, kept, resumed: await turn(again, "again"), persisted: await persisted(again), calls: [...files.calls].sort() };
}

export async function session_files_fail(stage) {
  const files = new MemoryFiles();
  const client = stage.client({ sessionFs: filesConfig });
  const session = await client.createSession(stage.config({ createSessionFsProvider: () => files }));
  await turn(session, "hello");
  files.broken = true;
  return { plan: await failure(() => session.rpc.plan.update({ content: "# Lost\n" })) };
}

export async function session_files_missing(stage) {
  const client = stage.client({ sessionFs: filesConfig });
  return { refused: await failure(() => client.createSession(stage.config())) };
}

export async function canvas(stage) {
  const called = [];
  const board = createCanvas({
    id: "board", displayName: "Board", description: "A place to draw", inputSchema: { type: "object", properties: { title: { type: "string" } } },
    actions: [
      { name: "draw", description: "Draws", handler: ({ input }) => { called.push(["draw", input]); return { drawn: true }; } },
      { name: "tear", description: "Tears", handler: () => { throw new CanvasError("torn", "the paper tore"); } },
    ],
    open: ({ input, instanceId }) => { called.push(["open", input, instanceId]); return { title: "A board", url: "http://localhost/board" }; },
    onClose: ({ instanceId }) => { called.push(["close", instanceId]); },
  });
  const seen = new Recorder();
  const session = await stage.client().createSession(stage.config({ canvases: [board], requestCanvasRenderer: true, extensionInfo: { source: "tests", name: "boards" }, onEvent: seen.take }));
  const { rpc } = session;
  const listed = await rpc.canvas.list();
  const id = listed.canvases[0] ?? {};
  const opened = await failure(() => rpc.canvas.open({ canvasId: "board", extensionId: id.extensionId, instanceId: "one", input: { title: "x" } }));
  const drawn = await failure(() => rpc.canvas.action.invoke({ instanceId: "one", actionName: "draw", input: { a: 1 } }));
  const torn = await failure(() => rpc.canvas.action.invoke({ instanceId: "one", actionName: "tear" }));
  const missing = await failure(() => rpc.canvas.action.invoke({ instanceId: "two", actionName: "draw" }));
  const open = session.openCanvases.length;
  const closed = await failure(() => rpc.canvas.close({ instanceId: "one" }));
  await turn(session, "hello");
  return { capabilities: session.capabilities, listed, opened, drawn, torn, missing, open, closed, called, kinds: [...new Set(seen.events.map((e) => e.type).filter((t) => t.includes("canvas")))], left: session.openCanvases.length };
}

export async function github_session(stage) {
  const client = stage.client(stage.github({ gitHubToken: "token-of-alice" }));
  const { provider: _, ...config } = stage.config();
  const session = await client.createSession(config);
  const answer = await turn(session, "hello");
  const models = await client.listModels();
  return {
    answer, auth: await client.getAuthStatus(), models: models.map((m) => m.id), quota: await failure(() => client.rpc.account.getQuota()),
    used: (await stage.requests()).map((r) => r.header.Authorization), persisted: await persisted(session),
  };
}

export async function auth_of_each_session(stage) {
  const client = stage.client(stage.github());
  const { provider: _, ...config } = stage.config();
  const logins = {};
  for (const name of ["alice", "bob"]) {
    const session = await client.createSession({ ...config, gitHubToken: `token-of-${name}` });
    const status = await session.rpc.gitHubAuth.getStatus();
    logins[name] = [status, await turn(session, `hello from ${name}`)];
  }
  const bad = await failure(() => client.createSession({ ...config, gitHubToken: "token-of-nobody" }).then((s) => turn(s, "hello")));
  const none = await failure(() => client.createSession(config).then((s) => turn(s, "hello")));
  check((await stage.requests()).length >= 2, "both asked");
  return { logins, bad, none, used: [...new Set((await stage.requests()).map((r) => r.header.Authorization?.[0]))] };
}

export async function token_provider(stage) {
  const asked = [];
  const client = stage.client(stage.github());
  const { provider: _, ...config } = stage.config();
  const session = await failure(() => client.createSession({ ...config, gitHubTokenProvider: (args) => { asked.push(args); return { kind: "token", accessToken: "token-of-alice", token: "token-of-alice" }; } }).then(async (s) => ({ answer: await turn(s, "hello"), auth: await s.rpc.gitHubAuth.getStatus() })));
  return { session, asked: asked.length > 0, members: asked.slice(0, 1).map((a) => [Object.keys(a).sort(), a.reason]) };
}
