// How a stream ends that Node.js reports as closed too early, though the server's status has arrived.
import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { Code, ConnectError, type StreamResponse, type UnaryRequest } from "@connectrpc/connect";
import { serverStatus } from "../src/node/status.js";

const premature = new ConnectError("premature close", Code.Internal);

/** The messages of a stream with these trailers, as the interceptor passes them on. */
async function intercepted(messages: AsyncIterable<number>, trailer: Headers): Promise<AsyncIterable<unknown>> {
  const response = { stream: true, message: messages, trailer } as unknown as StreamResponse;
  const passed = await serverStatus(() => Promise.resolve(response))({} as UnaryRequest);
  return passed.message as AsyncIterable<unknown>;
}

/** Yields a number and breaks. */
async function* broken(): AsyncGenerator<number> {
  yield 1;
  throw premature;
}

async function collect(messages: AsyncIterable<unknown>): Promise<{ found: unknown[]; error?: unknown }> {
  const found: unknown[] = [];
  try {
    for await (const message of messages) found.push(message);
  } catch (error) {
    return { found, error };
  }
  return { found };
}

describe("a stream that is closed too early", () => {
  it("ends with the status of the trailers", async () => {
    const trailer = new Headers({
      "grpc-status": "9",
      "grpc-message": "the session is gone",
      "copilot-reason": "SESSION_LOST",
    });
    const { found, error } = await collect(await intercepted(broken(), trailer));
    assert.deepEqual(found, [1]);
    assert.ok(error instanceof ConnectError);
    assert.equal(error.code, Code.FailedPrecondition);
    assert.equal(error.rawMessage, "the session is gone");
    assert.equal(error.metadata.get("copilot-reason"), "SESSION_LOST");
  });

  it("ends without an error if the status is OK", async () => {
    const end = await collect(await intercepted(broken(), new Headers({ "grpc-status": "0" })));
    assert.deepEqual(end, { found: [1] });
  });

  it("is broken without a status", async () => {
    const end = await collect(await intercepted(broken(), new Headers()));
    assert.deepEqual(end, { found: [1], error: premature });
  });

  it("ends the call when the reader leaves", async () => {
    let left = false;
    async function* endless(): AsyncGenerator<number> {
      try {
        for (;;) yield 1;
      } finally {
        left = true;
      }
    }
    for await (const message of await intercepted(endless(), new Headers())) {
      assert.equal(message, 1);
      break;
    }
    assert.ok(left);
  });
});
