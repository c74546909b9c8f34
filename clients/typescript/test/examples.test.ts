// The examples on the real server. The watcher runs through a cut connection and an end of its own process.
import assert from "node:assert/strict";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import type { TestServer } from "@copilot-grpc/client/testing";
import { gatedModel, Program, Proxy, startServer } from "./fixture.js";

const token = "a-token-for-these-tests";
let server: TestServer;

before(async () => {
  server = await startServer({ model: gatedModel, args: ["--listen", "127.0.0.1:0", "--token", token] });
});
after(() => server.close());

function example(name: string, target: string, ...args: string[]): Program {
  return new Program([`build/examples/${name}.js`, ...args], {
    COPILOT_GRPC_TARGET: target,
    COPILOT_GRPC_TOKEN: token,
  });
}

test("the watcher survives a cut connection and its own end while the agent works", async () => {
  const folder = await mkdtemp(join(tmpdir(), "client-"));
  const [, tcp = ""] = server.addresses;
  await using proxy = await Proxy.start(tcp);
  try {
    const agent = example("agent", server.target);
    const [line = ""] = await agent.until("session ");
    const args = [line.replace("session ", ""), join(folder, "position")];

    const first = example("watch", proxy.address, ...args);
    const lines = await first.until("external_tool.completed");
    proxy.cut();
    const broken = await first.until("event stream broken");
    await first.kill();
    const second = example("watch", proxy.address, ...args);
    await server.release("cut");
    const rest = await second.rest();
    checkEvents([...lines, ...broken, ...rest]);

    assert.deepEqual(await agent.rest(), [
      "assistant: Let me look.",
      "permission get_weather",
      "tool get_weather Paris",
      "assistant: The tool says: rain in Paris. Take a coat.",
      "completed",
    ]);
  } finally {
    await rm(folder, { recursive: true });
  }
});

/** Every event once and in order. */
function checkEvents(lines: string[]): void {
  const events = lines.filter((line) => /^event \d/.test(line));
  const seqs = events.map((line) => Number(/^event \d+\/(\d+) /.exec(line)?.[1]));
  assert.deepEqual(
    seqs,
    seqs.map((_, index) => index + 1),
  );
  assert.equal(lines.length - events.length, 1, lines.join("\n"));
  for (const type of ["session.start", "permission.requested", "external_tool.requested", "session.idle"]) {
    assert.ok(
      events.some((line) => line.endsWith(type)),
      `no ${type}`,
    );
  }
}

test("two participants share a session", async () => {
  const shared = example("shared", server.target);
  await server.release("cut");
  assert.deepEqual(await shared.rest(), [
    "participants: reviewer, worker",
    "the reviewer approves custom-tool",
    "The tool says: rain in Paris. Take a coat.",
  ]);
});
