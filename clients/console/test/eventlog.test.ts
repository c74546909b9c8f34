// The timeline's log of events over a client that sends frames one by one.
import assert from "node:assert/strict";
import { describe, test } from "node:test";
import type { Client, SubscribeResponse } from "@copilot-grpc/client";
import { Connection } from "../src/lib/connection.js";
import { EventLog, type EventLogState } from "../src/lib/eventlog.js";

function prompt(seq: number): SubscribeResponse {
  const position = { epoch: 1n, seq: BigInt(seq) };
  const timestamp = { seconds: BigInt(1000 + seq), nanos: 0 };
  const data = { case: "userMessage", value: { content: `prompt ${seq}` } };
  const event = { id: `e${seq}`, timestamp, agentId: "", data };
  return { frame: { case: "events", value: { events: [{ position, event }] } } } as never;
}

const caughtUp = { frame: { case: "caughtUp", value: {} } } as SubscribeResponse;

describe("event log", () => {
  test("events are shown while more arrive, at most every 100 ms", async () => {
    let [now, next] = [1000, (_: SubscribeResponse) => {}];
    let screen: (() => void)[] = [];
    async function* read() {
      for (;;) yield await new Promise<SubscribeResponse>((resolve) => (next = resolve));
    }
    const client = { session: () => ({ frames: read, close: () => Promise.resolve() }) } as unknown as Client;
    const schedule = (run: () => void) => {
      screen.push(run);
      return () => (screen = screen.filter((other) => other !== run));
    };
    const log = new EventLog(client, new Connection(), "s", schedule, () => now);
    const shown: (readonly [number, number, boolean])[] = [];
    log.state.subscribe(({ events, turns, caughtUp }: EventLogState) => shown.push([events.length, turns.count, caughtUp]));
    const settle = () => new Promise((resolve) => setImmediate(resolve));
    const arrive = async (frame: SubscribeResponse) => {
      next(frame);
      await settle();
    };
    const draw = () => screen.splice(0).forEach((run) => run());

    log.start();
    await settle();
    await arrive(prompt(1));
    draw(); // hands the frame on
    draw(); // shows it
    assert.deepEqual(shown, [[0, 0, false], [1, 1, false]]);
    await arrive(prompt(2));
    await arrive(prompt(3));
    draw();
    draw();
    assert.equal(shown.length, 2, "shown again at once");
    await arrive(caughtUp);
    draw();
    now += 100;
    draw();
    assert.deepEqual(shown.at(-1), [3, 3, true]);
    assert.equal(shown.length, 3);
    log.stop();
    assert.equal(screen.length, 0, "something is still to be drawn");
  });
});
