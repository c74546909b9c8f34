// Two participants in one session: one brings the tool and starts the turn, the other one decides on permissions.
//
//   node build/examples/shared.js
import { connect, defineTool } from "@copilot-grpc/client/node";
import { z } from "zod";

await using worker = await connect({ name: "worker" });
await using reviewer = await connect({ name: "reviewer" });

const getWeather = defineTool({
  name: "get_weather",
  description: "Tells the weather in a city",
  parameters: z.object({ city: z.string() }),
  handler: ({ city }) => `rain in ${city}`,
});
await using session = await worker.createSession({ tools: [getWeather] });
await using review = await reviewer.joinSession(session.id, {
  onPermission({ kind }) {
    console.log(`the reviewer approves ${kind}`);
    return "approve";
  },
});

const { participants } = (await review.get()).proto;
console.log(
  `participants: ${participants
    .map(({ name }) => name)
    .sort()
    .join(", ")}`,
);
const outcome = await session.sendAndWait("What is the weather in Paris?");
console.log(outcome.text);
