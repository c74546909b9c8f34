// The reducer of the view: on the cases that all libraries satisfy, and on frames that were recorded from a server.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { resolve } from "node:path";
import { describe, test } from "node:test";
import {
  create,
  fromBinary,
  fromJson,
  type JsonValue,
  type MessageInitShape,
  toBinary,
} from "@bufbuild/protobuf";
import { formatPosition, parsePosition, type SubscribeResponse } from "@copilot-grpc/client";
import { CloseReason, SubscribeResponseSchema } from "@copilot-grpc/client/gen/copilot/bridge/v1/event_service_pb";
import type { SessionEventSchema } from "@copilot-grpc/client/gen/copilot/cli/v1/session_event_pb";
import { type AgentView, emptyView, reduce, type View, type ViewItem } from "@copilot-grpc/client/view";
import { packageRoot } from "./fixture.js";

type FrameInit = MessageInitShape<typeof SubscribeResponseSchema>["frame"];
type EventInit = Exclude<MessageInitShape<typeof SessionEventSchema>, { $typeName: string }>;
type EventData = NonNullable<EventInit["data"]>;

/** A frame at a position. */
function frame(at: string, value: NonNullable<FrameInit>): SubscribeResponse {
  return create(SubscribeResponseSchema, { sessionId: "s1", resumeAfter: parsePosition(at), frame: value });
}

/** A frame with one event. */
function event(at: string, data: EventData, fields: EventInit = {}): SubscribeResponse {
  const position = parsePosition(at);
  return frame(at, { case: "events", value: { events: [{ position, event: { id: `e${at}`, ...fields, data } }] } });
}

function viewOf(frames: SubscribeResponse[], from = emptyView()): View {
  return frames.reduce((view, next) => deepFreeze(reduce(view, next)), deepFreeze(from));
}

/** Fails a reducer that changes its input. */
function deepFreeze(view: View): View {
  for (const part of [view, view.items, view.turn, view.usage, view.pending, ...view.items]) Object.freeze(part);
  return view;
}

/** The reason for the end, as the cases of all libraries have it. */
function closed(view: View): CloseReason | undefined {
  return view.closed && CloseReason[view.closed.toUpperCase() as keyof typeof CloseReason];
}

/** An item in one line. */
function line(item: ViewItem): string {
  switch (item.kind) {
    case "user":
      return `user ${item.agentId}${item.text}${item.lost ? " (lost)" : ""}`;
    case "message":
    case "reasoning":
      return `${item.kind} ${item.agentId}${item.text}${item.streaming ? "…" : ""}`;
    case "tool":
      return `tool ${item.name}(${item.argumentsJson}) ${item.state} ${item.output || item.error}`.trim();
    case "notice":
      return `${item.level} ${item.text}`;
    case "gap":
      return `gap up to ${formatPosition(item.position)}`;
    case "restart":
      return `restart ${item.cause}`;
  }
}

/** A sub-agent in one line. */
function agent({ agentId, toolCallId, name, state, error, toolCalls, tokens, durationMs }: AgentView): string {
  return `${agentId} ${toolCallId} ${name} ${error ? `${state} ${error}` : state} ${toolCalls} ${tokens} ${durationMs}`;
}

/** The times and details of the tool calls, in one line each. */
function tools(view: View): string[] {
  return view.items.flatMap((item) =>
    item.kind === "tool" ? [`${item.toolCallId} ${item.startedAt} ${item.endedAt} ${item.detail}`] : [],
  );
}

/** The attachments of all prompts, in one line each. */
function attachments(view: View): string[] {
  return view.items.flatMap((item) =>
    item.kind === "user" ? item.attachments.map(({ kind, name, mimeType }) => `${kind} ${name} ${mimeType}`) : [],
  );
}

const whole = (content: string): EventData => ({ case: "assistantMessage", value: { messageId: "m1", content } });
const user: EventData = { case: "userMessage", value: { content: "hello", messageId: "u1" } };
const start: EventData = {
  case: "toolExecutionStart",
  value: { toolCallId: "t1", toolName: "bash", argumentsJson: '{"c":1}' },
};

/** A case of the data that all libraries satisfy. Members that are missing are not compared. */
interface ViewCase {
  readonly name: string;
  readonly frames?: readonly JsonValue[];
  readonly recording?: string;
  readonly items: readonly string[];
  readonly running: boolean;
  readonly title?: string;
  readonly model?: string;
  readonly intent?: string;
  readonly outcome?: string;
  readonly position?: string;
  readonly pending?: readonly string[];
  readonly agents?: readonly string[];
  readonly tools?: readonly string[];
  readonly attachments?: readonly string[];
  readonly usage?: object;
  readonly caughtUp?: boolean;
  readonly goingAway?: boolean;
  readonly closed?: number;
}

const data = resolve(packageRoot, "../testdata/view");

function recording(name: string): SubscribeResponse[] {
  return readFileSync(resolve(data, name), "utf8")
    .trim()
    .split("\n")
    .map((text) => fromBinary(SubscribeResponseSchema, Buffer.from(text, "base64")));
}

describe("cases", () => {
  for (const want of JSON.parse(readFileSync(resolve(data, "cases.json"), "utf8")) as ViewCase[]) {
    test(want.name, () => {
      const frames = want.recording
        ? recording(want.recording)
        : (want.frames ?? []).map((frame) => fromJson(SubscribeResponseSchema, frame));
      const view = viewOf(frames);
      const all = {
        ...{ items: view.items.map(line), running: view.turn.running, title: view.title, model: view.model },
        ...{ intent: view.turn.intent, outcome: view.turn.outcome?.status, usage: view.usage, closed: closed(view) },
        ...{ pending: view.pending.map(({ callbackId }) => callbackId), position: formatPosition(view.position) },
        ...{ caughtUp: view.caughtUp, goingAway: view.goingAway, agents: view.agents.map(agent), tools: tools(view) },
        attachments: attachments(view),
      };
      const { name: _name, frames: _frames, recording: _recording, ...expected } = want;
      const got = Object.fromEntries(Object.keys(expected).map((key) => [key, all[key as keyof typeof all]]));
      assert.deepEqual(got, expected);
    });
  }
});

describe("long sessions", () => {
  test("views of two branches keep their own items", () => {
    const common = viewOf([event("1/1", user)]);
    const one = viewOf([event("1/2", { ...start }), event("1/3", whole("one"))], common);
    const two = viewOf([event("1/2", whole("two")), event("1/3", start), event("1/4", whole("two again"))], common);
    const more = viewOf([event("1/5", whole("one again"))], one);
    assert.deepEqual(two.items.map(line), ["user hello", "message two again", 'tool bash({"c":1}) running']);
    assert.deepEqual(more.items.map(line), ["user hello", 'tool bash({"c":1}) running', "message one again"]);
    assert.deepEqual(one.items.map(line), ["user hello", 'tool bash({"c":1}) running', "message one"]);
    assert.deepEqual(common.items.map(line), ["user hello"]);
  });

  test("the work for an event does not grow with the session", () => {
    /** Reads of items while 200 events are added to a session with n items. */
    const reads = (n: number): number => {
      const batch = (from: number, size: number): SubscribeResponse => {
        const events = Array.from({ length: size }, (_, at) => ({
          position: parsePosition(`1/${from + at}`),
          event: { id: `e${from + at}`, data: { case: "assistantMessage" as const, value: { messageId: `m${from + at}`, content: "x" } } },
        }));
        return frame(`1/${from + size}`, { case: "events", value: { events } });
      };
      const view = reduce(emptyView(), batch(1, n));
      let count = 0;
      const items = new Proxy(view.items as ViewItem[], {
        get: (target, name, receiver) => {
          count++;
          return Reflect.get(target, name, receiver) as unknown;
        },
      });
      reduce({ ...view, items }, batch(n + 2, 200));
      return count / n;
    };
    // The first batch copies and indexes the list: a few reads of each item, and not 200.
    assert.ok(reads(5_000) < 10, `${reads(5_000)} reads of each item`);
  });
});

describe("a recorded turn with a tool and a permission", () => {
  const recorded = recording("turn.frames");

  test("the view at its end", () => {
    const view = viewOf(recorded);
    assert.equal(new Set(view.items.map(({ key }) => key)).size, view.items.length);
    assert.ok(view.usage.requests === 2 && view.usage.contextTokens > 0);
  });

  test("the view while the permission waits", () => {
    const at = recorded.findIndex(({ frame: { case: name } }) => name === "callbackRequested");
    const view = viewOf(recorded.slice(0, at + 1));
    assert.equal(view.pending[0]?.request.case, "permission");
    assert.equal(view.turn.running, true);
    assert.match(view.items.map(line).at(-1) ?? "", /^tool get_weather\(.*\) running$/);
  });

  test("frames that arrive twice, and batches of other sizes, result in the same view", () => {
    const single = viewOf(recorded);
    const doubled = viewOf(recorded.flatMap((each) => [each, copy(each)]));
    assert.deepEqual(doubled, single);
    const split = recorded.flatMap((each) => {
      if (each.frame.case !== "events") return [each];
      return each.frame.value.events.map((one) =>
        frame(formatPosition(one.position), { case: "events", value: { events: [one] } }),
      );
    });
    assert.deepEqual(viewOf(split), single);
  });

  test("a view continues at any frame after a new stream", () => {
    const want = viewOf(recorded).items.map(line);
    for (let at = 1; at < recorded.length; at++) {
      const view = viewOf(recorded.slice(0, at));
      const again = recorded[0] as SubscribeResponse;
      assert.deepEqual(viewOf([again, ...recorded.slice(at - 1)], view).items.map(line), want);
    }
  });
});

function copy(response: SubscribeResponse): SubscribeResponse {
  return fromBinary(SubscribeResponseSchema, toBinary(SubscribeResponseSchema, response));
}
