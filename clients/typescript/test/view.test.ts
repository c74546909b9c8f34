// The reducer of the view: as tables, and on frames that were recorded from a real server.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { resolve } from "node:path";
import { describe, test } from "node:test";
import { create, fromBinary, type MessageInitShape, toBinary } from "@bufbuild/protobuf";
import { formatPosition, parsePosition, type SubscribeResponse } from "@copilot-grpc/client";
import { SubscribeResponseSchema } from "@copilot-grpc/client/gen/copilot/bridge/v1/event_service_pb";
import type { SessionEventSchema } from "@copilot-grpc/client/gen/copilot/cli/v1/session_event_pb";
import { emptyView, reduce, type View, type ViewItem } from "@copilot-grpc/client/view";
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

/** An item in one line. */
function line(item: ViewItem): string {
  switch (item.kind) {
    case "user":
      return `user ${item.text}${item.lost ? " (lost)" : ""}`;
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

const delta = (deltaContent: string): EventData => ({
  case: "assistantMessageDelta",
  value: { messageId: "m1", deltaContent },
});
const whole = (content: string): EventData => ({ case: "assistantMessage", value: { messageId: "m1", content } });
const user: EventData = { case: "userMessage", value: { content: "hello", messageId: "u1" } };
const start: EventData = {
  case: "toolExecutionStart",
  value: { toolCallId: "t1", toolName: "bash", argumentsJson: '{"c":1}' },
};
const idle: EventData = { case: "sessionIdle", value: {} };
const through = parsePosition("2/7");

const tables: Record<
  string,
  { frames: SubscribeResponse[]; items: string[]; running?: boolean; check?: (view: View) => void }
> = {
  "deltas are merged into a message": {
    frames: [event("1/1", user), event("1/2", delta("one ")), event("1/3", delta("two"))],
    items: ["user hello", "message one two…"],
    running: true,
  },
  "the whole message replaces its deltas, also lost ones": {
    frames: [event("1/1", delta("one ")), event("1/5", whole("one two three")), event("1/6", delta("late"))],
    items: ["message one two three"],
  },
  "a whole message that was shortened does not replace its deltas": {
    frames: [
      event("1/1", delta("one two ")),
      event("1/2", delta("three")),
      frame("1/3", {
        case: "events",
        value: { events: [{ position: parsePosition("1/3"), truncated: true, event: { data: whole("one…") } }] },
      }),
    ],
    items: ["message one two three"],
  },
  "frames that arrive twice change nothing": {
    frames: [event("1/1", user), event("1/2", delta("one")), event("1/2", delta("one")), event("1/1", user)],
    items: ["user hello", "message one…"],
    running: true,
  },
  "the end of the turn ends streaming": {
    frames: [event("1/1", user), event("1/2", delta("one")), event("1/3", idle)],
    items: ["user hello", "message one"],
  },
  "reasoning and messages of sub-agents": {
    frames: [
      event("1/1", { case: "assistantReasoningDelta", value: { reasoningId: "r1", deltaContent: "hm" } }),
      event("1/2", { case: "assistantReasoning", value: { reasoningId: "r1", content: "hmm" } }),
      event("1/3", whole(" from a sub-agent"), { agentId: "a1" }),
      event("1/4", { case: "assistantTurnStart", value: { turnId: "x" } }, { agentId: "a1" }),
    ],
    items: ["reasoning hmm", "message a1 from a sub-agent"],
  },
  "a tool call, from its arguments to its result": {
    frames: [
      event("1/1", {
        case: "assistantToolCallDelta",
        value: { toolCallId: "t1", toolName: "bash", inputDelta: '{"c"' },
      }),
      event("1/2", {
        case: "assistantMessage",
        value: { messageId: "m1", toolRequests: [{ toolCallId: "t1", name: "bash", argumentsJson: "{}" }] },
      }),
      event("1/3", start),
      event("1/4", { case: "toolExecutionProgress", value: { toolCallId: "t1", progressMessage: "working" } }),
      event("1/5", { case: "toolExecutionPartialResult", value: { toolCallId: "t1", partialOutput: "half" } }),
      event("1/6", {
        case: "toolExecutionComplete",
        value: { toolCallId: "t1", success: true, result: { content: "all" } },
      }),
      event("1/7", start),
    ],
    items: ['tool bash({"c":1}) completed all'],
  },
  "a sub-agent: its task, its model and its context are not those of the session": {
    frames: [
      event("1/1", { case: "sessionModelChange", value: { newModel: "gpt" } }),
      event("1/2", start),
      event(
        "1/3",
        { case: "subagentStarted", value: { toolCallId: "t1", agentName: "explore", agentDisplayName: "Explorer" } },
        { agentId: "a1" },
      ),
      event("1/4", { case: "sessionModelChange", value: { newModel: "mini" } }, { agentId: "a1" }),
      event("1/5", { case: "userMessage", value: { content: "look", messageId: "u2" } }, { agentId: "a1" }),
      event(
        "1/6",
        { case: "sessionUsageInfo", value: { currentTokens: 7n, tokenLimit: 100n } },
        { agentId: "a1" },
      ),
      event(
        "1/7",
        { case: "subagentCompleted", value: { toolCallId: "t1", totalTokens: 12n, durationMs: 340n } },
        { agentId: "a1" },
      ),
    ],
    items: ['tool bash({"c":1}) running', "user look"],
    check: (view) => {
      assert.deepEqual([view.model, view.usage.contextTokens], ["gpt", 0]);
      assert.equal(view.items[1]?.kind === "user" && view.items[1].agentId, "a1");
      const [explorer] = view.agents;
      assert.deepEqual(
        [explorer?.agentId, explorer?.toolCallId, explorer?.name, explorer?.state, explorer?.tokens],
        ["a1", "t1", "Explorer", "completed", 12],
      );
    },
  },
  "times of a tool call, and its result for people": {
    frames: [
      event("1/1", start, { timestamp: { seconds: 10n, nanos: 5_000_000 } }),
      event(
        "1/2",
        { case: "toolExecutionComplete", value: { toolCallId: "t1", success: true, result: { content: "ok", detailedContent: "+a" } } },
        { timestamp: { seconds: 12n } },
      ),
    ],
    items: ['tool bash({"c":1}) completed ok'],
    check: (view) => {
      const [item] = view.items;
      assert.deepEqual(item?.kind === "tool" && [item.startedAt, item.endedAt, item.detail], [10_005, 12_000, "+a"]);
    },
  },
  "a tool that fails": {
    frames: [
      event("1/3", start),
      event("1/6", {
        case: "toolExecutionComplete",
        value: { toolCallId: "t1", success: false, error: { message: "no" } },
      }),
    ],
    items: ['tool bash({"c":1}) failed no'],
  },
  "a gap, the session's state after it, and pending callbacks": {
    frames: [
      event("1/1", user),
      frame("1/2", { case: "callbackRequested", value: { callback: { callbackId: "c1" } } }),
      frame("2/7", {
        case: "gap",
        value: { through, reason: 2, session: { summary: "renamed" }, pendingCallbacks: [{ callbackId: "c2" }] },
      }),
      frame("2/7", { case: "gap", value: { through, reason: 2 } }),
      event("2/8", whole("after")),
    ],
    items: ["user hello", "gap up to 2/7", "message after"],
    check: (view) => {
      assert.equal(view.title, "renamed");
      assert.deepEqual(
        view.pending.map(({ callbackId }) => callbackId),
        ["c2"],
      );
    },
  },
  "callbacks come and go": {
    frames: [
      frame("1/1", { case: "callbackRequested", value: { callback: { callbackId: "c1" } } }),
      frame("1/1", { case: "callbackRequested", value: { callback: { callbackId: "c2" } } }),
      frame("1/1", { case: "callbackRequested", value: { callback: { callbackId: "c1" } } }),
      frame("1/2", { case: "callbackResolved", value: { callbackId: "c2" } }),
    ],
    items: [],
    check: (view) =>
      assert.deepEqual(
        view.pending.map(({ callbackId }) => callbackId),
        ["c1"],
      ),
  },
  "a restart of the CLI ends the turn with its outcome": {
    frames: [
      event("1/1", user),
      frame("1/2", { case: "runtimeRestarted", value: { cause: "killed", turnOutcome: { status: 5 } } }),
    ],
    items: ["user hello", "restart killed"],
    check: (view) => assert.equal(view.turn.outcome?.status, "runtime-lost"),
  },
  "a lost message is marked": {
    frames: [
      event("1/1", user),
      frame("1/2", { case: "turnEnded", value: { outcome: { status: 3 }, messageIds: ["u1"] } }),
    ],
    items: ["user hello (lost)"],
    check: (view) => assert.equal(view.turn.outcome?.status, "failed"),
  },
  "notices, title, model, intent and usage": {
    frames: [
      event("1/1", { case: "assistantTurnStart", value: { turnId: "1" } }),
      event("1/2", { case: "assistantIntent", value: { intent: "Reading" } }),
      event("1/3", { case: "sessionError", value: { errorType: "query", message: "no model" } }),
      event("1/4", { case: "sessionTitleChanged", value: { title: "A title" } }),
      event("1/5", { case: "sessionModelChange", value: { newModel: "gpt" } }),
      event("1/6", { case: "assistantUsage", value: { inputTokens: 10n, outputTokens: 2n, cost: 0.5 } }),
      event("1/7", { case: "assistantUsage", value: { inputTokens: 5n } }),
      event("1/8", { case: "sessionUsageInfo", value: { currentTokens: 7n, tokenLimit: 100n } }),
    ],
    items: ["error no model"],
    running: true,
    check: (view) => {
      assert.deepEqual([view.turn.intent, view.title, view.model], ["Reading", "A title", "gpt"]);
      const want = { requests: 2, inputTokens: 15, outputTokens: 2, cost: 0.5, contextTokens: 7, contextLimit: 100 };
      assert.deepEqual(view.usage, want);
    },
  },
  "a replay of a session without a running turn ends idle": {
    frames: [
      frame("0/0", { case: "started", value: { session: { turnRunning: false, position: parsePosition("1/2") } } }),
      event("1/1", user),
      event("1/2", whole("hi")),
      frame("1/2", { case: "caughtUp", value: {} }),
    ],
    items: ["user hello", "message hi"],
    check: (view) => assert.equal(view.caughtUp, true),
  },
  "a closed session, and frames that are newer than the library": {
    frames: [
      event("1/1", { case: "unrecognized", value: "{}" }, { eventType: "new.event" }),
      create(SubscribeResponseSchema, { resumeAfter: parsePosition("1/9") }),
      frame("1/9", { case: "goAway", value: {} }),
      frame("1/9", { case: "closed", value: { reason: 2 } }),
    ],
    items: [],
    check: (view) => {
      assert.deepEqual([view.goingAway, view.closed], [true, 2]);
      assert.equal(formatPosition(view.position), "1/9");
    },
  },
};

describe("frames", () => {
  for (const [name, { frames, items, running = false, check }] of Object.entries(tables)) {
    test(name, () => {
      const view = viewOf(frames);
      assert.deepEqual(view.items.map(line), items);
      assert.equal(view.turn.running, running);
      check?.(view);
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
  const recorded = readFileSync(resolve(packageRoot, "test/testdata/turn.frames"), "utf8")
    .trim()
    .split("\n")
    .map((text) => fromBinary(SubscribeResponseSchema, Buffer.from(text, "base64")));

  test("the view at its end", () => {
    const view = viewOf(recorded);
    assert.deepEqual(view.items.map(line), [
      "user What is the weather in Paris?",
      "reasoning The user wants the weather.",
      "message Let me look.",
      'tool get_weather({"city":"Paris"}) completed rain in Paris',
      "message The tool says: rain in Paris. Take a coat.",
    ]);
    assert.equal(new Set(view.items.map(({ key }) => key)).size, view.items.length);
    assert.deepEqual(
      [view.turn.running, view.turn.outcome?.status, view.pending.length, view.caughtUp],
      [false, "completed", 0, true],
    );
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
