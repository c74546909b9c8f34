import assert from "node:assert/strict";
import { test } from "node:test";
import type { Client } from "@copilot-grpc/client";
import { Connection } from "../src/lib/connection.js";
import { FleetStream } from "../src/lib/fleetstream.js";

test("the fleet is complete before the stream of changes says anything", { timeout: 5_000 }, async () => {
  async function* silent(_request: object, { signal }: { signal: AbortSignal }): AsyncGenerator<never> {
    await new Promise((_resolve, reject) => signal.addEventListener("abort", () => reject(new Error("aborted"))));
  }
  async function* listed(): AsyncGenerator<{ proto: { sessionId: string } }> {
    yield { proto: { sessionId: "stored" } };
  }
  const client = { rpc: { events: { watchSessions: silent } }, listSessions: listed } as unknown as Client;
  const now = (run: () => void) => (run(), () => undefined);
  const stream = new FleetStream(client, new Connection(), () => false, now);
  const complete = new Promise<void>((resolve) => {
    stream.fleet.subscribe((fleet) => fleet.complete && resolve());
  });
  stream.start();
  await complete;
  assert.deepEqual([...stream.fleet.get().sessions.keys()], ["stored"]);
  stream.stop();
});
