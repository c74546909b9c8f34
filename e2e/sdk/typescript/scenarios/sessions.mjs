// Sessions: how they begin, are found again, change and end.
import { CopilotClient } from "@github/copilot-sdk";
import { check, eventually, failure, persisted, Recorder, turn, until } from "../stage.mjs";

const unknown = "00000000-0000-4000-8000-000000000000";

export async function status(stage) {
  const client = stage.client();
  await client.start();
  const { message, protocolVersion } = await client.ping("are you there?");
  return {
    message, protocolVersion, status: await client.getStatus(), auth: await client.getAuthStatus(),
    models: await failure(() => client.listModels()), last: (await client.getLastSessionId()) ?? null,
    foreground: await failure(() => client.getForegroundSessionId()), set: await failure(() => client.setForegroundSessionId(unknown)),
  };
}

export async function own_id(stage) {
  const session = await stage.client().createSession(stage.config({ sessionId: "a-session-of-mine" }));
  check(session.sessionId === "a-session-of-mine", `the id is ${session.sessionId}`);
  return { answer: await turn(session, "hello"), persisted: await persisted(session) };
}

export async function resume(stage) {
  const client = stage.client();
  const first = await client.createSession(stage.config());
  await turn(first, "hello");
  await first.disconnect();
  const session = await client.resumeSession(first.sessionId, stage.config());
  const answer = await turn(session, "again");
  const last = (await stage.requests()).at(-1);
  return { answer, roles: last.messages.map((m) => m.role), persisted: await persisted(session) };
}

export async function resume_in_another_process(stage) {
  const one = stage.client();
  const first = await one.createSession(stage.config());
  await turn(first, "hello");
  await one.stop();
  const session = await stage.client().resumeSession(first.sessionId, stage.config());
  return { answer: await turn(session, "again"), persisted: await persisted(session) };
}

export async function resume_warm(stage) {
  const client = stage.client();
  const first = await client.createSession(stage.config());
  await turn(first, "hello");
  const again = await client.resumeSession(first.sessionId, stage.config());
  const seen = new Recorder(again);
  return { answer: await turn(again, "again"), live: seen.types, persisted: await persisted(again) };
}

export async function resume_silently(stage) {
  const client = stage.client();
  const first = await client.createSession(stage.config());
  await turn(first, "hello");
  await first.disconnect();
  const session = await client.resumeSession(first.sessionId, stage.config({ suppressResumeEvent: true }));
  return { answer: await turn(session, "again"), persisted: await persisted(session) };
}

export async function unknown_session(stage) {
  const client = stage.client();
  await client.start();
  return {
    resume: await failure(() => client.resumeSession(unknown, stage.config())),
    remove: await failure(() => client.deleteSession(unknown)),
    metadata: (await client.getSessionMetadata(unknown)) ?? null,
    send: await failure(() => client.rpc.ping({ message: "still here" }).then((r) => r.message)),
  };
}

export async function after_disconnect(stage) {
  const session = await stage.client().createSession(stage.config());
  await turn(session, "hello");
  await session.disconnect();
  return {
    send: await failure(() => session.send({ prompt: "hello" })), events: await failure(() => session.getEvents()),
    abort: await failure(() => session.abort()), again: await failure(() => session.disconnect()),
    mode: await failure(() => session.rpc.mode.get()),
  };
}

export async function list_and_delete(stage) {
  const client = stage.client();
  const one = await client.createSession(stage.config({ sessionId: "session-one" }));
  await turn(one, "hello");
  const two = await client.createSession(stage.config({ sessionId: "session-two" }));
  await turn(two, "good day");
  const ids = async () => (await client.listSessions()).map((s) => s.sessionId).sort();
  const both = await eventually("both sessions in the list", async () => (await ids()).length === 2 && ids());
  const metadata = await client.getSessionMetadata("session-one");
  const last = await client.getLastSessionId();
  await client.deleteSession("session-one");
  return {
    both, last, metadata: { ...metadata, startTime: metadata.startTime instanceof Date, modifiedTime: metadata.modifiedTime instanceof Date },
    after: await ids(), gone: await failure(() => client.resumeSession("session-one", stage.config())),
    filtered: (await client.listSessions({ workingDirectory: stage.work })).map((s) => s.sessionId),
  };
}

export async function lifecycle(stage) {
  const client = stage.client();
  const told = [];
  client.onLifecycle((event) => told.push([event.type, event.sessionId]));
  const has = (type, id) => told.some(([t, i]) => t === type && i === id);
  const session = await client.createSession(stage.config({ sessionId: "watched" }));
  await turn(session, "hello");
  await session.disconnect();
  await client.deleteSession("watched");
  await eventually("the end", () => has("session.deleted", "watched"));
  return { created: has("session.created", "watched"), updated: has("session.updated", "watched"), kinds: [...new Set(told.map(([t]) => t))].sort() };
}

export async function several_sessions(stage) {
  const client = stage.client();
  const sessions = await Promise.all([1, 2, 3].map(() => client.createSession(stage.config({ streaming: true }))));
  const seen = sessions.map((s) => new Recorder(s));
  const answers = await Promise.all(sessions.map((s, i) => turn(s, `number ${i}`)));
  return { answers, live: seen.map((s) => s.types), deltas: seen.map((s) => s.data("assistant.message_delta").map((d) => d.deltaContent).join("")) };
}

export async function settings(stage) {
  const session = await stage.client().createSession(stage.config());
  const seen = new Recorder(session);
  const { rpc } = session;
  const named = await failure(() => rpc.name.set({ name: "A fine name" }));
  const modes = [];
  for (const mode of ["plan", "autopilot", "interactive"]) {
    await rpc.mode.set({ mode });
    modes.push(await rpc.mode.get());
  }
  await rpc.plan.update({ content: "# First this\n" });
  const plan = await rpc.plan.read();
  await rpc.plan.delete();
  await session.log("a note", { level: "warning" });
  await session.log("gone tomorrow", { ephemeral: true });
  await turn(session, "hello");
  return {
    named, name: await rpc.name.get(), modes, plan, gone: await rpc.plan.read(), persisted: await persisted(session),
    kinds: [...new Set(seen.events.map((e) => e.type))].sort(), logged: seen.data("session.warning").concat(seen.data("session.info")),
  };
}

export async function change_model(stage) {
  const session = await stage.client().createSession(stage.config());
  const seen = new Recorder(session);
  await turn(session, "hello");
  const before = await session.rpc.model.getCurrent();
  const changed = await failure(() => session.setModel("other-model"));
  await turn(session, "hello again");
  return {
    before, changed, now: await session.rpc.model.getCurrent(), asked: (await stage.requests()).map((r) => r.model),
    told: seen.data("session.model_change"), bad: await failure(() => session.setModel("")), persisted: await persisted(session),
  };
}

export async function infinite_sessions_off(stage) {
  const session = await stage.client().createSession(stage.config({ infiniteSessions: { enabled: false } }));
  return { workspace: session.workspacePath ?? null, answer: await turn(session, "hello") };
}

export async function events_from_the_start(stage) {
  const seen = new Recorder();
  const session = await stage.client().createSession(stage.config({ onEvent: seen.take }));
  const start = await seen.first("session.start");
  await turn(session, "hello");
  return { start: Object.keys(start.data).sort(), producer: start.data.producer, live: seen.types };
}

export async function stop_and_start(stage) {
  const client = stage.client();
  const session = await client.createSession(stage.config());
  await turn(session, "hello");
  const errors = await client.stop();
  await client.start();
  const again = await client.resumeSession(session.sessionId, stage.config());
  return { errors: errors.length, answer: await turn(again, "again"), persisted: await persisted(again) };
}

export async function force_stop(stage) {
  const client = stage.client();
  const session = await client.createSession(stage.config());
  await turn(session, "hello");
  const seen = new Recorder(session);
  await session.send({ prompt: "never end" });
  await seen.first("assistant.turn_start");
  await client.forceStop();
  const next = stage.client();
  const again = await next.resumeSession(session.sessionId, stage.config());
  return { answer: await turn(again, "again") };
}

export async function no_cli(stage) {
  const client = new CopilotClient({ connection: { kind: "stdio", path: stage.cli, args: [...stage.cliArgs, "--no-such-flag"] }, workingDirectory: stage.project });
  const { message } = await failure(() => client.start());
  await client.forceStop();
  return { failed: /exit|closed|code/i.test(message ?? "") };
}

export async function telemetry_events(stage) {
  const told = [];
  const client = stage.client({ onGitHubTelemetry: (n) => told.push(n) });
  const session = await client.createSession(stage.config());
  await turn(session, "hello");
  await eventually("telemetry", () => told.length > 5);
  await until("its end", (done) => setTimeout(done, 500));
  return { kinds: [...new Set(told.map((n) => n.event.kind))].sort(), members: [...new Set(told.flatMap((n) => Object.keys(n)))].sort() };
}
