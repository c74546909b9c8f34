// A session with a tool and a permission, over one bidirectional stream: the caller brings
// a tool, asks the agent something, answers what it is asked, and prints what it is told.
//
//   node dist/examples/agent.js ADDRESS
import { createClient } from "@connectrpc/connect";
import type { MessageInitShape } from "@bufbuild/protobuf";
import type { AnswerSchema, Callback } from "#gen/copilot/bridge/v1/callback_pb.js";
import { type AttachRequestSchema, CallbackService } from "#gen/copilot/bridge/v1/callback_service_pb.js";
import type { Event, SubscribeResponse } from "#gen/copilot/bridge/v1/event_service_pb.js";
import { Outbox } from "../src/outbox.js";
import { connectTo } from "../src/transport.js";

type Frame = MessageInitShape<typeof AttachRequestSchema>;
type Answer = MessageInitShape<typeof AnswerSchema>["answer"];

const address = process.argv[2] ?? "";
const callbacks = createClient(CallbackService, connectTo(address, process.env.COPILOT_GRPC_TOKEN));

// What the model is told of the tool.
const getWeather = {
  name: "get_weather",
  description: "Tells the weather in a city",
  parametersJson: JSON.stringify({
    type: "object",
    properties: { city: { type: "string" } },
    required: ["city"],
  }),
};

/** Answers what the agent asks: the call of the tool, or leave to call it. */
function answerTo(callback: Callback): Answer {
  switch (callback.request.case) {
    case "toolCall": {
      const { toolName, argumentsJson = "{}" } = callback.request.value;
      console.log(`tool ${toolName} ${argumentsJson}`);
      const { city } = JSON.parse(argumentsJson) as { city: string };
      return { case: "tool", value: { outcome: { case: "text", value: `rain in ${city}` } } };
    }
    case "permission": {
      const asked = callback.request.value.permissionRequest?.variant;
      console.log(`permission ${asked?.case}`);
      // Look at what is asked before saying yes; { case: "reject", value: { feedback } } is no.
      return { case: "approve", value: {} };
    }
    default:
      return { case: "abstain", value: {} };
  }
}

/** Prints what the agent says. Returns whether its turn is over. */
function show({ event }: Event): boolean {
  switch (event?.data.case) {
    case "assistantMessage":
      if (event.data.value.content) console.log(`assistant: ${event.data.value.content}`);
      return false;
    case "sessionError":
      throw new Error(event.data.value.message);
    default:
      return event?.data.case === "sessionIdle";
  }
}

/** Sees to a frame of the session's stream. Returns whether the turn is over. */
function attend({ frame }: SubscribeResponse, outbox: Outbox<Frame>): boolean {
  switch (frame.case) {
    case "callbackRequested": {
      const { callback, offered } = frame.value;
      if (callback && offered) {
        const value = { callbackId: callback.callbackId, answer: { answer: answerTo(callback) } };
        outbox.send({ frame: { case: "answer", value } });
      }
      return false;
    }
    case "events":
      return frame.value.events.map(show).includes(true);
    default:
      return false;
  }
}

async function main(): Promise<void> {
  const outbox = new Outbox<Frame>();
  // The first frame creates the session, with the tool and the handler in place before
  // the agent can ask for either.
  outbox.send({
    frame: {
      case: "start",
      value: {
        session: { case: "create", value: { config: { clientName: "example" } } },
        tools: [getWeather],
        handlers: { permission: true },
      },
    },
  });
  for await (const { frame } of callbacks.attach(outbox)) {
    switch (frame.case) {
      case "started": {
        console.log(`session ${frame.value.session?.sessionId}`);
        const prompt = { text: "What is the weather in Paris?" };
        const value = { commandId: "ask", command: { case: "send" as const, value: prompt } };
        outbox.send({ frame: { case: "command", value } });
        break;
      }
      case "stream":
        // Half-closing leaves the session; the server then ends the stream.
        if (attend(frame.value, outbox)) outbox.close();
        break;
      case "failed":
        throw new Error(frame.value.failure?.message);
    }
  }
}

await main();
