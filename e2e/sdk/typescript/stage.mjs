// What a scenario stands on: clients of the official SDK that know nothing of where their
// runtime comes from, and ways to write down what happened.
import { mkdirSync } from "node:fs";
import { join } from "node:path";
import { approveAll, CopilotClient, RuntimeConnection } from "@github/copilot-sdk";

// How long anything may take: far more than anything takes.
const patience = 60_000;

// Stage is one scenario's surroundings, as the driver lays them out in SDK_* variables.
export class Stage {
  /** The model's URL. */
  model = process.env.SDK_MODEL;
  /** A folder of the scenario's own. */
  work = process.env.SDK_WORK;
  /** What plays the CLI, and what comes first on its command line. */
  cli = process.env.SDK_CLI;
  cliArgs = JSON.parse(process.env.SDK_CLI_ARGS ?? "[]");
  /** The version of the CLI, such as 1.0.102. */
  version = process.env.SDK_CLI_VERSION;
  #clients = [];

  constructor() {
    mkdirSync(join(this.work, "project"), { recursive: true });
  }

  get project() {
    return join(this.work, "project");
  }

  /** since says whether the CLI is of that patch of 1.0 or a later one. */
  since(patch) {
    return Number(this.version.split(".")[2]) >= patch;
  }

  /** client is a client over stdio, unless the options name a connection. */
  client(options = {}) {
    const client = new CopilotClient({
      connection: this.stdio(),
      workingDirectory: this.project,
      baseDirectory: join(this.work, "home"),
      logLevel: "error",
      ...options,
    });
    this.#clients.push(client);
    return client;
  }

  stdio() {
    return RuntimeConnection.forStdio({ path: this.cli, args: this.cliArgs });
  }

  tcp(options = {}) {
    return RuntimeConnection.forTcp({ path: this.cli, args: this.cliArgs, ...options });
  }

  /** listen starts a process that listens; connect gives further clients of it. */
  async listen(options = { connectionToken: "a-connection-token" }) {
    const first = this.client({ connection: this.tcp(options) });
    await first.start();
    const connect = (connectionToken = options.connectionToken) => {
      const connection = RuntimeConnection.forUri(`127.0.0.1:${first.runtimePort}`, { connectionToken: connectionToken ?? undefined });
      return this.client({ connection, workingDirectory: undefined, baseDirectory: undefined, logLevel: undefined });
    };
    return { first, connect };
  }

  provider(more = {}) {
    return { type: "openai", wireApi: "completions", baseUrl: `${this.model}/v1`, apiKey: "offline", ...more };
  }

  /** config is a session's, with the scripted model and everything allowed. */
  config(more = {}) {
    return { model: "offline-model", provider: this.provider(), onPermissionRequest: approveAll, ...more };
  }

  /** github are a client's options with which GitHub's own API is the scripted model. */
  github(options = {}) {
    return {
      env: { ...process.env, COPILOT_API_URL: this.model, COPILOT_DEBUG_GITHUB_API_URL: this.model },
      ...options,
    };
  }

  /** requests are what the model was asked. */
  async requests() {
    const answer = await fetch(`${this.model}/_offline/requests`);
    const { requests } = await answer.json();
    return requests.filter((r) => r.messages?.length);
  }

  /** release lets a held answer go on. */
  async release() {
    await fetch(`${this.model}/_offline/release?gate=gate`, { method: "POST" });
  }

  async close() {
    for (const client of this.#clients.reverse()) {
      await client.stop().catch(() => {});
    }
  }
}

/** persisted are the types of the events that a session keeps, in order. CLI 1.0.81 stores the end of a request for a tool from another
 *  thread than the turn, which goes on meanwhile: on a busy machine it came behind the next request to the model, once in hundreds of
 *  turns. So it comes last here. */
export async function persisted(session) {
  const types = (await session.getEvents()).filter((e) => !e.ephemeral).map((e) => e.type);
  if (process.env.SDK_CLI_VERSION !== "1.0.81") {
    return types;
  }
  const beside = (type) => type === "external_tool.completed";
  return [...types.filter((type) => !beside(type)), ...types.filter(beside)];
}

/** persistedHooked is persisted where there are hooks, once all have ended, with those of the session's start apart:
 *  the CLI goes on with the prompt's hooks meanwhile, and which end first is a matter of time. */
export async function persistedHooked(session) {
  const count = (events, type) => events.filter((e) => e.type === type).length;
  const events = await eventually("the hooks to end", async () => {
    const kept = (await session.getEvents()).filter((e) => !e.ephemeral);
    return count(kept, "hook.start") === count(kept, "hook.end") && kept;
  });
  const ofStart = (e) => e.type.startsWith("hook.") && e.data.hookType === "sessionStart";
  return { start: events.filter(ofStart).map((e) => e.type), then: events.filter((e) => !ofStart(e)).map((e) => e.type) };
}

/** failure is what a call fails with; "no failure" is one, too. */
export async function failure(call) {
  try {
    return { succeeded: (await call()) ?? null };
  } catch (error) {
    return { code: error.code ?? null, message: error.message };
  }
}

/** Recorder writes down the events of a session as they come. */
export class Recorder {
  events = [];
  #waiting = [];

  constructor(session) {
    session?.on((event) => this.take(event));
  }

  take = (event) => {
    this.events.push(event);
    this.#waiting = this.#waiting.filter((w) => !w(event));
  };

  of(type) {
    return this.events.filter((e) => e.type === type);
  }

  data(type) {
    return this.of(type).map((e) => e.data);
  }

  /** types are those of the events that a session keeps. Its start may come before anybody
   *  can listen. */
  get types() {
    return this.events.filter((e) => !e.ephemeral && e.type !== "session.start").map((e) => e.type);
  }

  /** first waits for an event of a type that fits, and also finds one that came before. */
  async first(type, fits = () => true) {
    const wanted = (e) => e.type === type && fits(e);
    const found = this.events.find(wanted);
    if (found) return found;
    return until(`event ${type}`, (done) => this.#waiting.push((e) => wanted(e) && (done(e), true)));
  }

  /** next waits for one that is yet to come. */
  next(type, fits = () => true) {
    return until(`event ${type}`, (done) => this.#waiting.push((e) => e.type === type && fits(e) && (done(e), true)));
  }
}

/** until waits for something, but not for ever. */
export async function until(what, start) {
  let timer;
  try {
    return await new Promise((done, fail) => {
      timer = setTimeout(() => fail(new Error(`waited in vain for ${what}`)), patience);
      start(done);
    });
  } finally {
    clearTimeout(timer);
  }
}

/** eventually asks again until an answer will do. */
export async function eventually(what, ask) {
  const end = Date.now() + patience;
  for (;;) {
    const answer = await ask();
    if (answer) return answer;
    if (Date.now() > end) throw new Error(`waited in vain for ${what}`);
    await new Promise((done) => setTimeout(done, 50));
  }
}

/** turn sends a prompt and gives the answer's text. */
export async function turn(session, prompt) {
  const answer = await session.sendAndWait(typeof prompt === "string" ? { prompt } : prompt, patience);
  return answer?.data.content ?? null;
}

/** check is an assertion: it must hold wherever the scenario runs. */
export function check(holds, claim) {
  if (!holds) throw new Error(`does not hold: ${claim}`);
}
