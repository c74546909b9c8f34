// The driver of this library for `make bench-libraries`: tool calls and events with the library, and with the stubs
// alone. node build/test/bench.js TARGET
import { connect as connectSocket } from "node:net";
import { createInterface } from "node:readline";
import { createClient } from "@connectrpc/connect";
import { createGrpcTransport, Http2SessionManager } from "@connectrpc/connect-node";
import { CallbackService, defineTool, EventService, isGap } from "@copilot-grpc/client";
import type { AttachRequestSchema } from "@copilot-grpc/client/gen/copilot/bridge/v1/callback_service_pb";
import { connect } from "@copilot-grpc/client/node";
import type { MessageInitShape } from "@bufbuild/protobuf";

type AttachRequestInit = MessageInitShape<typeof AttachRequestSchema>;

/** Runs with a transport of the same settings as the library's. */
async function withTransport(
  target: string,
  run: (transport: ReturnType<typeof createGrpcTransport>) => Promise<number>,
): Promise<number> {
  const path = target.replace("unix:", "");
  const settings = { initialWindowSize: 1 << 20 };
  const sessionManager = new Http2SessionManager("http://localhost", { pingIntervalMs: 30_000 }, {
    settings,
    createConnection: () => connectSocket(path),
  });
  try {
    return await run(createGrpcTransport({ baseUrl: "http://localhost", sessionManager }));
  } finally {
    sessionManager.abort();
  }
}

function stubCalls(target: string): Promise<number> {
  return withTransport(target, async (transport) => {
    let [queue, wake]: [AttachRequestInit[], () => void] = [[], () => undefined];
    let ended = false;
    const send = (frame: AttachRequestInit) => {
      queue.push(frame);
      wake();
    };
    async function* requests(): AsyncGenerator<AttachRequestInit> {
      while (!ended) {
        const ready = queue;
        queue = [];
        for (const message of ready) yield message;
        if (queue.length === 0 && !ended) await new Promise<void>((resolve) => (wake = resolve));
      }
    }
    let count = 0;
    send({ frame: { case: "start", value: { session: { case: "create", value: {} } } } });
    for await (const { frame } of createClient(CallbackService, transport).attach(requests())) {
      if (frame.case !== "stream" || frame.value.frame.case !== "callbackRequested") continue;
      const { callbackId = "", request } = frame.value.frame.value.callback ?? {};
      if (request?.case !== "toolCall") continue;
      const { text } = JSON.parse(request.value.argumentsJson ?? "{}") as { text: string };
      const answer = { case: "tool", value: { outcome: { case: "text", value: text } } } as const;
      send({ frame: { case: "answer", value: { callbackId, answer: { answer } } } });
      count++;
    }
    ended = true;
    wake();
    return count;
  });
}

async function libraryCalls(target: string): Promise<number> {
  let count = 0;
  const echo = defineTool({
    name: "echo",
    description: "Repeats a text.",
    parameters: { type: "object", properties: { text: { type: "string" } }, required: ["text"] },
    handler: ({ text }) => {
      count++;
      return text;
    },
  });
  await using client = await connect({ target });
  const session = await client.createSession({ tools: [echo] });
  await session.closed;
  return count;
}

function stubEvents(target: string, size: string): Promise<number> {
  return withTransport(target, async (transport) => {
    let count = 0;
    const sessions = [{ sessionId: size }];
    for await (const { frame } of createClient(EventService, transport).subscribe({ sessions })) {
      if (frame.case !== "events") continue;
      for (const { event } of frame.value.events) {
        if (event?.data.case === "assistantMessage" && event.data.value.content) count++;
      }
    }
    return count;
  });
}

async function libraryEvents(target: string, size: string): Promise<number> {
  let count = 0;
  await using client = await connect({ target });
  for await (const event of client.session(size).events()) {
    if (isGap(event)) continue;
    const { data } = event.event ?? {};
    if (data?.case === "assistantMessage" && data.value.content) count++;
  }
  return count;
}

const target = process.argv[2] ?? "";
for await (const line of createInterface({ input: process.stdin })) {
  const [way, operation = ""] = line.split(" ");
  const size = operation.replace("event", "");
  const stubs = way === "stubs";
  const run = operation === "call" ? (stubs ? stubCalls : libraryCalls) : stubs ? stubEvents : libraryEvents;
  console.log(await run(target, size));
}
