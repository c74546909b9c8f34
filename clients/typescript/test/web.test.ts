// The library for browsers in Node.js, with a server in this process.
import assert from "node:assert/strict";
import { once } from "node:events";
import { createServer, type Server } from "node:http";
import type { AddressInfo } from "node:net";
import { after, before, describe, test } from "node:test";
import { setImmediate as turn } from "node:timers/promises";
import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";
import { Code } from "@connectrpc/connect";
import { connectNodeAdapter } from "@connectrpc/connect-node";
import { EventService, RuntimeService } from "@copilot-grpc/client";
import { connect } from "@copilot-grpc/client/web";

setFlagsFromString("--expose-gc");
const collectGarbage = runInNewContext("gc") as () => void;

describe("over fetch", () => {
  let server: Server;
  let baseUrl = "";
  let ended: (() => void) | undefined;

  before(async () => {
    const handler = connectNodeAdapter({
      routes: ({ service }) => {
        service(RuntimeService, { getServerInfo: () => ({ version: "v0.1.0" }) });
        service(EventService, {
          async *subscribe(_, { signal }) {
            yield { sessionId: "s1" };
            await once(signal, "abort");
            ended?.();
          },
        });
      },
    });
    server = createServer(handler).listen(0, "127.0.0.1");
    await once(server, "listening");
    baseUrl = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  });

  after(() => {
    server.closeAllConnections();
    server.close();
  });

  test("an abort ends a stream that waits, whatever was collected", { timeout: 20_000 }, async () => {
    await using client = await connect({ baseUrl });
    for (let round = 0; round < 5; round++) {
      const over = new Promise<void>((resolve) => (ended = resolve));
      const controller = new AbortController();
      const frames = client.rpc.events.subscribe({}, { signal: controller.signal })[Symbol.asyncIterator]();
      assert.equal((await frames.next()).value?.sessionId, "s1");
      const next = frames.next();
      for (let i = 0; i < 5; i++) {
        await turn();
        collectGarbage();
      }
      controller.abort(new Error("enough"));
      await assert.rejects(next);
      await over; // the server was told
    }
  });

  test("a server that is not there is unavailable", async () => {
    const free = createServer().listen(0, "127.0.0.1");
    await once(free, "listening");
    const { port } = free.address() as AddressInfo;
    free.close();
    await once(free, "close");
    const options = { baseUrl: `http://127.0.0.1:${port}`, reconnect: false as const };
    const message = /no server at http:.*: start it with `copilot-grpc serve --web`, .*option baseUrl of connect/;
    await assert.rejects(connect(options), { name: "CopilotError", code: Code.Unavailable, message });
  });

  test("a target of Node.js is no baseUrl", async () => {
    for (const baseUrl of ["unix:/run/s.sock", "localhost:7443", "dns:///agents.example.com:7443"])
      await assert.rejects(connect({ baseUrl }), /^TypeError: ".*" is no baseUrl: write https:\/\/host:port$/);
  });
});
