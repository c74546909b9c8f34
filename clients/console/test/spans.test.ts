// Where the time of a turn goes.
import assert from "node:assert/strict";
import { describe, test } from "node:test";
import type { Event } from "@copilot-grpc/client";
import { viewAt } from "../src/lib/eventlog.js";
import { timeByKind, Turns } from "../src/lib/spans.js";

/** An event at a second of the session. */
function event(second: number, name: string, value: object, agentId = ""): Event {
  const timestamp = { seconds: BigInt(1000 + second), nanos: 0 };
  const position = { epoch: 1n, seq: BigInt(second + 1) };
  return { position, event: { id: `e${second}${name}`, timestamp, agentId, data: { case: name, value } } } as unknown as Event;
}

const user = (second: number, content: string) => event(second, "userMessage", { content, attachments: [], messageId: content });

const events = [
  event(0, "sessionStart", {}),
  user(1, "first\nprompt"),
  event(4, "assistantUsage", { model: "m", duration: 3000n }),
  event(4, "toolExecutionStart", { toolCallId: "t1", toolName: "bash" }),
  event(5, "permissionRequested", { requestId: "p1" }),
  event(8, "permissionCompleted", { requestId: "p1" }),
  event(10, "toolExecutionComplete", { toolCallId: "t1", success: false }),
  event(11, "assistantUsage", { model: "mini", duration: 500n }, "agent"),
  user(20, "second"),
  event(21, "toolExecutionStart", { toolCallId: "t2", toolName: "view" }),
  event(25, "sessionIdle", {}),
];

describe("spans", () => {
  const turns = new Turns();
  turns.add(events);
  const [first, second] = [turns.at(0), turns.at(1)];

  test("each prompt begins a turn", () => {
    assert.equal(turns.count, 2);
    assert.deepEqual([first?.title, first?.first], ["first", 1]);
    assert.deepEqual([second?.title, second?.first], ["second", 8]);
    assert.deepEqual([0, 1, 7, 8, 10].map((event) => turns.indexOf(event)), [-1, 0, 0, 1, 1]);
    assert.deepEqual([turns.at(-1), turns.at(2)], [undefined, undefined]);
    assert.equal(second!.end - second!.start, 5000);
  });

  test("model calls, tools and waits have begin and end", () => {
    const shown = first!.spans.map(({ kind, name, start, end, failed, depth }) => [
      ...[kind, name, start - first!.start, end === undefined ? -1 : end - start],
      ...(failed ? ["failed"] : []),
      ...(depth ? ["sub-agent"] : []),
    ]);
    assert.deepEqual(shown, [
      ["model", "m", 0, 3000],
      ["tool", "bash", 3000, 6000, "failed"],
      ["wait", "Permission", 4000, 3000],
      ["model", "mini", 9500, 500, "sub-agent"],
    ]);
    assert.deepEqual([...timeByKind(first!)], [["model", 3500], ["tool", 6000], ["wait", 3000]]);
  });

  test("events that arrive in parts make the same turns", () => {
    const grown = new Turns();
    for (const one of events) grown.add([one]);
    assert.deepEqual([grown.at(0), grown.at(1)], [first, second]);
  });

  test("a span without an end lasts until the end of the turn", () => {
    assert.equal(second!.spans[0]?.end, undefined);
    assert.deepEqual([...timeByKind(second!)], [["tool", 4000]]);
  });

  test("the session as it was at an event", () => {
    assert.deepEqual(viewAt(events, 2).items.map(({ kind }) => kind), ["user"]);
    assert.deepEqual(viewAt(events, events.length).items.map(({ kind }) => kind), ["user", "tool", "user", "tool"]);
  });
});
