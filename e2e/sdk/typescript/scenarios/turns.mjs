// Turns: what is sent, what comes back and in what pieces, and how a turn ends.
import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { check, eventually, failure, persisted, Recorder, turn } from "../stage.mjs";

export async function simple_turn(stage) {
  const session = await stage.client().createSession(stage.config());
  const seen = new Recorder(session);
  const answer = await turn(session, "hello");
  check(answer === "You said: hello", `the answer is ${answer}`);
  return {
    answer, live: seen.types, persisted: await persisted(session),
    capabilities: session.capabilities, workspace: session.workspacePath,
  };
}

export async function conversation(stage) {
  const session = await stage.client().createSession(stage.config());
  const answers = [];
  for (const prompt of ["one", "two", "three"]) answers.push(await turn(session, prompt));
  const last = (await stage.requests()).at(-1);
  return { answers, roles: last.messages.map((m) => m.role), persisted: await persisted(session) };
}

// Every piece of an answer arrives, once and in order, before the whole.
async function streamed(stage, prompt, streaming) {
  const session = await stage.client().createSession(stage.config({ streaming }));
  const seen = new Recorder(session);
  const answer = await turn(session, prompt);
  const deltas = seen.data("assistant.message_delta").map((d) => d.deltaContent);
  const order = seen.events.map((e) => e.type);
  check(!streaming || deltas.join("") === answer, "the deltas make the answer");
  check(order.lastIndexOf("assistant.message_delta") < order.indexOf("assistant.message"), "deltas come before the message");
  return {
    answer, deltas: deltas.length, messages: new Set(seen.data("assistant.message_delta").map((d) => d.messageId)).size,
    kinds: [...new Set(order)].sort(), persisted: await persisted(session),
  };
}

export const streaming_on = (stage) => streamed(stage, "write five words", true);
export const streaming_off = (stage) => streamed(stage, "write five words", false);
export const streaming_long = (stage) => streamed(stage, "write a thousand words", true);

export async function streaming_after_resume(stage) {
  const client = stage.client();
  const first = await client.createSession(stage.config({ streaming: false }));
  await turn(first, "hello");
  await first.disconnect();
  const session = await client.resumeSession(first.sessionId, stage.config({ streaming: true }));
  const seen = new Recorder(session);
  const answer = await turn(session, "write five words");
  return { answer, deltas: seen.of("assistant.message_delta").length, persisted: await persisted(session) };
}

export async function reasoning(stage) {
  const session = await stage.client().createSession(stage.config({ streaming: true, reasoningEffort: "high" }));
  const seen = new Recorder(session);
  const answer = await turn(session, "think first");
  return {
    answer, thought: seen.data("assistant.reasoning_delta").map((d) => d.deltaContent).join(""),
    persisted: await persisted(session),
  };
}

export async function abort_while_streaming(stage) {
  const session = await stage.client().createSession(stage.config({ streaming: true }));
  const seen = new Recorder(session);
  const idle = seen.next("session.idle");
  await session.send({ prompt: "hold the line" });
  await seen.first("assistant.message_delta");
  await session.abort();
  await idle;
  const after = await turn(session, "hello");
  return { after, types: await persisted(session), reason: seen.data("abort") };
}

export async function abort_idle(stage) {
  const session = await stage.client().createSession(stage.config());
  const aborted = await failure(() => session.abort());
  return { aborted, answer: await turn(session, "hello") };
}

export async function queue(stage) {
  const session = await stage.client().createSession(stage.config({ streaming: true }));
  const seen = new Recorder(session);
  await session.send({ prompt: "hold the line" });
  await seen.first("assistant.message_delta");
  const second = seen.next("session.idle");
  await session.send({ prompt: "second", mode: "enqueue" });
  await session.send({ prompt: "third", mode: "enqueue" });
  const pending = await session.rpc.queue.pendingItems();
  await stage.release();
  await second;
  return {
    pending, idles: seen.of("session.idle").length, users: seen.data("user.message").map((d) => [d.content, d.delivery]),
    answers: seen.data("assistant.message").map((d) => d.content), persisted: await persisted(session),
  };
}

export async function steering(stage) {
  const session = await stage.client().createSession(stage.config({ streaming: true }));
  const seen = new Recorder(session);
  await session.send({ prompt: "hold the line" });
  await seen.first("assistant.message_delta");
  const idle = seen.next("session.idle");
  await session.send({ prompt: "and mind the step", mode: "immediate" });
  await stage.release();
  await idle;
  return { users: seen.data("user.message").map((d) => [d.content, d.delivery]), persisted: await persisted(session) };
}

export async function queue_cleared(stage) {
  const session = await stage.client().createSession(stage.config({ streaming: true }));
  const seen = new Recorder(session);
  await session.send({ prompt: "hold the line" });
  await seen.first("assistant.message_delta");
  const idle = seen.next("session.idle");
  await session.send({ prompt: "second", mode: "enqueue" });
  await session.send({ prompt: "third", mode: "enqueue" });
  const removed = await failure(() => session.rpc.queue.removeMostRecent());
  const cleared = await failure(() => session.rpc.queue.clear());
  await stage.release();
  await idle;
  return { removed, cleared, users: seen.data("user.message").map((d) => d.content), persisted: await persisted(session) };
}

export async function model_error(stage) {
  const session = await stage.client().createSession(stage.config());
  const seen = new Recorder(session);
  const failing = async (prompt, nth) => {
    const outcome = await failure(() => turn(session, prompt));
    // The error comes before the end of the turn, which is not to end the next.
    await eventually("the end of the turn", () => seen.of("session.idle").length === nth);
    return outcome;
  };
  const refused = await failing("fail 400", 1);
  const unknown = await failing("fail 401", 2);
  return { refused, unknown, errors: seen.data("session.error").map(({ stack, ...rest }) => rest), after: await failure(() => turn(session, "hello")), persisted: await persisted(session) };
}

export async function wait_times_out(stage) {
  const session = await stage.client().createSession(stage.config({ streaming: true }));
  const seen = new Recorder(session);
  const given_up = await failure(() => session.sendAndWait({ prompt: "hold the line" }, 1_000));
  const idle = seen.next("session.idle");
  await stage.release();
  await idle;
  return { given_up, answers: seen.data("assistant.message").map((d) => d.content), persisted: await persisted(session) };
}

// A one-pixel picture.
const pixel = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==";

export async function attachments(stage) {
  const file = join(stage.project, "notes.txt");
  writeFileSync(file, "remember the milk\n");
  mkdirSync(join(stage.project, "folder"), { recursive: true });
  const session = await stage.client().createSession(stage.config());
  const seen = new Recorder(session);
  await turn(session, {
    prompt: "look at these", attachments: [
      { type: "file", path: file, displayName: "notes" },
      { type: "directory", path: join(stage.project, "folder") },
      { type: "selection", filePath: file, displayName: "a word", text: "milk", selection: { start: { line: 0, character: 13 }, end: { line: 0, character: 17 } } },
      { type: "blob", data: pixel, mimeType: "image/png", displayName: "dot" },
    ],
  });
  return { attached: seen.data("user.message").map((d) => d.attachments), persisted: await persisted(session) };
}

export async function request_headers(stage) {
  const session = await stage.client().createSession(stage.config({ provider: stage.provider({ headers: { "x-always": "yes" } }) }));
  await turn(session, { prompt: "one", requestHeaders: { "x-once": "here" } });
  await turn(session, "two");
  const told = (await stage.requests()).map((r) => [r.header["X-Always"], r.header["X-Once"]]);
  return { told };
}

export async function display_prompt(stage) {
  const session = await stage.client().createSession(stage.config());
  const seen = new Recorder(session);
  const answer = await turn(session, { prompt: "the long form of it", displayPrompt: "in short" });
  return { answer, users: seen.data("user.message").map((d) => [d.content, d.displayContent, d.transformedContent !== undefined]) };
}

export async function bad_sends(stage) {
  const session = await stage.client().createSession(stage.config());
  return {
    empty: await failure(() => turn(session, "")),
    no_file: await failure(() => turn(session, { prompt: "look", attachments: [{ type: "file", path: join(stage.project, "absent.txt") }] })),
    mode: await failure(() => session.send({ prompt: "x", mode: "sideways" }).then(() => "sent")),
  };
}
