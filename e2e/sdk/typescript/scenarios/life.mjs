// What happens to a session over time: suspended, rewound, shortened, compacted, forked.
import { defineTool } from "@github/copilot-sdk";
import { eventually, failure, persisted, Recorder, turn, until } from "../stage.mjs";

const user = (events, n) => events.filter((e) => e.type === "user.message")[n];

async function talked(stage, more = {}) {
  const client = stage.client();
  const session = await client.createSession(stage.config(more));
  for (const prompt of ["one", "two", "three"]) await turn(session, prompt);
  return { client, session };
}

// What a suspended session is told, it answers. That turn ends before the session is resumed:
// a resume in the midst of it may come before or after the model is asked, on the CLI too.
export async function suspend(stage) {
  const { client, session } = await talked(stage);
  const suspended = await failure(() => session.rpc.suspend());
  const after = await failure(() => turn(session, "anyone?"));
  const again = await client.resumeSession(session.sessionId, stage.config());
  return { suspended, after, answer: await turn(again, "four"), persisted: (await persisted(again)).filter((t) => t !== "session.resume") };
}

// pendingTool leaves a session while its tool is at work, and comes back by another
// connection.
async function pendingTool(stage, more) {
  let called;
  const came = until("the call", (done) => { called = done; });
  const tool = (handler) => defineTool("get_weather", { description: "Weather", parameters: { type: "object", properties: { city: { type: "string" } } }, handler, skipPermission: true });
  const { first, connect } = await stage.listen();
  const client = connect();
  const session = await client.createSession(stage.config({ tools: [tool(() => { called(); return new Promise(() => {}); })] }));
  const seen = new Recorder(session);
  await session.send({ prompt: 'use get_weather {"city":"Paris"}' });
  await came;
  const { data } = await seen.first("external_tool.requested");
  await client.forceStop();
  // Nobody says when it is known that the other connection has gone, and its tool with it.
  const again = await eventually("the place of the one who has gone", () =>
    first.resumeSession(session.sessionId, stage.config({ tools: [tool(() => "rainy")], ...more })).catch((error) => {
      if (!error.message.includes("already registered by another connection")) throw error;
    }));
  const later = new Recorder(again);
  const handled = await failure(() => again.rpc.tools.handlePendingToolCall({ requestId: data.requestId, result: { textResultForLlm: "sunny after all", resultType: "success" } }));
  return { again, later, handled };
}

export async function continue_pending_work(stage) {
  const { again, later, handled } = await pendingTool(stage, { continuePendingWork: true });
  await eventually("the end of the turn", async () => (await persisted(again)).at(-1) === "assistant.turn_end" && later.of("session.idle").length);
  return { handled, answer: later.data("assistant.message").map((d) => d.content), persisted: await persisted(again) };
}

export async function drop_pending_work(stage) {
  const { again, handled } = await pendingTool(stage, {});
  return { handled, answer: await turn(again, "hello"), persisted: await persisted(again) };
}

export async function truncate(stage) {
  const { session } = await talked(stage);
  const events = await session.getEvents();
  const cut = await failure(() => session.rpc.history.truncate({ eventId: user(events, 1).id }));
  const bad = await failure(() => session.rpc.history.truncate({ eventId: "00000000-0000-4000-8000-000000000000" }));
  const answer = await turn(session, "instead");
  return { cut, bad, answer, asked: (await stage.requests()).at(-1).messages.map((m) => [m.role, m.text ?? m.content]).filter(([r]) => r === "user").length, persisted: await persisted(session) };
}

export async function rewind(stage) {
  const { session } = await talked(stage, { enableFileChangeTracking: true });
  const points = await failure(() => session.rpc.history.listRewindPoints());
  const point = points.succeeded?.rewindPoints?.[1] ?? points.succeeded?.points?.[1] ?? {};
  const id = { eventId: point.eventId ?? user(await session.getEvents(), 1).id };
  const preview = await failure(() => session.rpc.history.previewRewind(id));
  const rewound = await failure(() => session.rpc.history.rewind({ ...id, mode: "conversation" }));
  return { points, preview, rewound, answer: await turn(session, "instead"), persisted: await persisted(session) };
}

export async function compact(stage) {
  const { session } = await talked(stage);
  const seen = new Recorder(session);
  const compacted = await failure(() => session.rpc.history.compact());
  const answer = await turn(session, "four");
  return { compacted: { ...compacted, succeeded: Object.keys(compacted.succeeded ?? {}).sort() }, live: seen.types, answer, persisted: await persisted(session) };
}

export async function compact_nothing(stage) {
  const session = await stage.client().createSession(stage.config());
  return { compacted: await failure(() => session.rpc.history.compact().then((r) => Object.keys(r).sort())) };
}

export async function fork(stage) {
  const { client, session } = await talked(stage);
  const forked = await failure(() => client.rpc.sessions.fork({ sessionId: session.sessionId, toEventId: undefined }));
  const id = forked.succeeded?.sessionId;
  if (!id) return { forked };
  const twin = await client.resumeSession(id, stage.config());
  return { forked, answer: await turn(twin, "four"), twin: await persisted(twin), original: await persisted(session) };
}

export async function event_log(stage) {
  const { session } = await talked(stage);
  const { eventLog } = session.rpc;
  const tail = await failure(() => eventLog.tail());
  const read = await failure(() => eventLog.read({ limit: 500 }).then((r) => ({ members: Object.keys(r).sort(), types: r.events.filter((e) => !e.ephemeral).map((e) => e.type) })));
  const interest = await failure(() => eventLog.registerInterest({ eventType: "command.queued" }));
  return { tail: Object.keys(tail.succeeded ?? tail).sort(), read, interest: Object.keys(interest.succeeded ?? interest).sort() };
}

export async function shell_of_the_session(stage) {
  const session = await stage.client().createSession(stage.config());
  const seen = new Recorder(session);
  const ran = await failure(() => session.rpc.shell.executeUserRequested({ command: "echo from the shell", requestId: "00000000-0000-4000-8000-000000000001" }));
  const exec = await failure(() => session.rpc.shell.exec({ command: "true" }).then((r) => Object.keys(r).sort()));
  return { ran, exec, kinds: [...new Set(seen.events.map((e) => e.type))].sort() };
}

export async function workspace_files(stage) {
  const session = await stage.client().createSession(stage.config());
  await turn(session, "hello");
  const { workspaces } = session.rpc;
  return {
    made: await failure(() => workspaces.createFile({ path: "a.txt", content: "alpha" })), read: await failure(() => workspaces.readFile({ path: "a.txt" })),
    missing: await failure(() => workspaces.readFile({ path: "b.txt" })), outside: await failure(() => workspaces.readFile({ path: "../../a.txt" })),
    listed: await failure(() => workspaces.listFiles()),
  };
}
