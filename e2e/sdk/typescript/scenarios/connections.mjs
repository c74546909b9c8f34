// TCP: one process with several connections, each a participant of its own.
import { CopilotRequestHandler, defineTool, RuntimeConnection } from "@github/copilot-sdk";
import { check, eventually, failure, persisted, Recorder, turn } from "../stage.mjs";

const tool = (name, answer) => defineTool(name, { description: `Tells ${name}`, parameters: { type: "object", properties: { city: { type: "string" } } }, handler: () => answer });

export async function tcp_turn(stage) {
  const { first } = await stage.listen();
  const session = await first.createSession(stage.config({ streaming: true }));
  const seen = new Recorder(session);
  return { answer: await turn(session, "write five words"), deltas: seen.of("assistant.message_delta").length, persisted: await persisted(session) };
}

export async function tcp_token(stage) {
  const { connect } = await stage.listen();
  const outcome = (client) => failure(() => client.start().then(() => client.ping("hi")).then((r) => r.message));
  return { right: await outcome(connect()), wrong: await outcome(connect("not-it")), none: await outcome(connect(null)) };
}

export async function tcp_joined(stage) {
  const { first, connect } = await stage.listen();
  const session = await first.createSession(stage.config({ streaming: true }));
  const one = new Recorder(session);
  await turn(session, "hello");
  const second = await connect().resumeSession(session.sessionId, stage.config({ streaming: true }));
  const two = new Recorder(second);
  const idle = two.next("session.idle");
  const answer = await turn(session, "write five words");
  await idle;
  const text = (seen) => seen.data("assistant.message_delta").map((d) => d.deltaContent).join("");
  check(two.events.filter((e) => !e.ephemeral).every((e) => one.events.some((o) => o.id === e.id)), "both see the same events");
  return { answer, one: one.types, two: two.types, texts: [text(one), text(two)], persisted: await persisted(second) };
}

export async function tcp_tools_of_both(stage) {
  const { first, connect } = await stage.listen();
  const session = await first.createSession(stage.config({ tools: [tool("get_weather", "sunny")] }));
  const second = await connect().resumeSession(session.sessionId, stage.config({ tools: [tool("get_secret", "hidden")] }));
  const clash = await failure(() => connect().resumeSession(session.sessionId, stage.config({ tools: [tool("get_weather", "mine")] })).then(() => "joined"));
  const seen = new Recorder(second);
  const answers = [await turn(session, 'use get_weather {"city":"x"}'), await turn(session, 'use get_secret {"city":"x"}')];
  await eventually("the end of both turns there, too", () => seen.of("session.idle").length === 2);
  answers.push(await turn(second, 'use get_weather {"city":"x"}'));
  return { answers, clash, persisted: await persisted(session) };
}

// What one connection provides for the process is asked of it once, whoever is in the session.
export async function tcp_provider_once(stage) {
  const asked = [];
  const requestHandler = new (class extends CopilotRequestHandler {
    async sendRequest(request, context) {
      if (request.method === "POST") asked.push(new URL(request.url).pathname.replace(/.*\/v1/, "/v1"));
      return super.sendRequest(request, context);
    }
  })();
  const connectionToken = "a-connection-token";
  const first = stage.client({ connection: stage.tcp({ connectionToken }), requestHandler });
  await first.start();
  const session = await first.createSession(stage.config());
  const connection = RuntimeConnection.forUri(`127.0.0.1:${first.runtimePort}`, { connectionToken });
  const other = stage.client({ connection, workingDirectory: undefined, baseDirectory: undefined, logLevel: undefined });
  const second = await other.resumeSession(session.sessionId, stage.config());
  const idle = [new Recorder(session).next("session.idle"), new Recorder(second).next("session.idle")];
  const answers = [await turn(second, "hello")];
  await Promise.all(idle); // or the next turn ends with this one's
  answers.push(await turn(session, "again"));
  const both = [...asked];
  await other.stop();
  answers.push(await turn(session, "alone"));
  return { answers, both, asked, persisted: await persisted(session) };
}

export async function tcp_tools_leave(stage) {
  const { first, connect } = await stage.listen();
  const session = await first.createSession(stage.config({ tools: [tool("get_weather", "sunny")] }));
  const other = connect();
  await other.resumeSession(session.sessionId, stage.config({ tools: [tool("get_secret", "hidden")] }));
  await turn(session, "hello");
  await other.stop();
  const offered = await eventually("the tool's end", async () => {
    await turn(session, "hello");
    const { tools } = (await stage.requests()).at(-1);
    return !tools.includes("get_secret") && tools.includes("get_weather");
  });
  const both = (await stage.requests())[0].tools.filter((t) => t.startsWith("get_")).sort();
  return { both, offered };
}

export async function tcp_permission_of_the_other(stage) {
  const { first, connect } = await stage.listen();
  const session = await first.createSession(stage.config({ onPermissionRequest: () => new Promise(() => {}) }));
  const seen = new Recorder(session);
  const asked = [];
  await connect().resumeSession(session.sessionId, stage.config({ onPermissionRequest: (r) => { asked.push(r.kind); return { kind: "reject", feedback: "says the other" }; } }));
  const answer = await turn(session, 'use bash {"command":"true","description":"Nothing"}');
  return { answer, asked, completed: seen.data("permission.completed").map((d) => d.result), persisted: await persisted(session) };
}

export async function tcp_sessions_outlive_one(stage) {
  const { first, connect } = await stage.listen();
  const session = await first.createSession(stage.config({ streaming: true }));
  const seen = new Recorder(session);
  const other = connect();
  const second = await other.resumeSession(session.sessionId, stage.config({ streaming: true }));
  await second.send({ prompt: "hold the line" });
  await seen.first("assistant.message_delta");
  await other.stop();
  const idle = seen.next("session.idle");
  await stage.release();
  await idle;
  return { answers: seen.data("assistant.message").map((d) => d.content), persisted: await persisted(session) };
}

export async function tcp_last_one_leaves(stage) {
  const { first, connect } = await stage.listen();
  await first.ping("hi");
  const other = connect();
  const session = await other.createSession(stage.config({ streaming: true }));
  await turn(session, "hello");
  const seen = new Recorder(session);
  await session.send({ prompt: "never end" });
  await seen.first("assistant.message_delta");
  await other.forceStop();
  const again = await eventually("the session's end", async () => {
    const outcome = await failure(() => first.resumeSession(session.sessionId, stage.config()));
    return outcome.succeeded;
  });
  return { answer: await turn(again, "again"), persisted: await persisted(again) };
}

export async function tcp_list_of_both(stage) {
  const { first, connect } = await stage.listen();
  const told = [];
  first.onLifecycle((event) => told.push(event.type));
  const other = connect();
  const session = await other.createSession(stage.config({ sessionId: "of-the-other" }));
  await turn(session, "hello");
  const listed = await eventually("the session", async () => (await first.listSessions()).map((s) => s.sessionId).find((id) => id === "of-the-other"));
  await eventually("the news", () => told.includes("session.created"));
  return { listed, metadata: (await first.getSessionMetadata("of-the-other"))?.sessionId };
}

export async function tcp_without_token(stage) {
  const { first } = await stage.listen({});
  return { message: (await first.ping("hi")).message };
}

export async function tcp_process_ends(stage) {
  const { first, connect } = await stage.listen();
  const other = connect();
  await other.start();
  await first.stop();
  return { gone: (await failure(() => other.ping("hi"))).message !== undefined };
}
