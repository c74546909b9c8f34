// An agent with a tool and a permission: the program provides the tool, decides on permissions, and prints the turn.
//
//   node build/examples/agent.js [PROMPT]
import { connect, defineTool, isGap, permissionRules, reject } from "@copilot-grpc/client/node";
import { z } from "zod";

const getWeather = defineTool({
  name: "get_weather",
  description: "Tells the weather in a city",
  parameters: z.object({ city: z.string().describe("the city to look up") }),
  handler({ city }) {
    console.log(`tool get_weather ${city}`);
    return `rain in ${city}`;
  },
});

await using client = await connect({ name: "example" });
await using session = await client.createSession({
  tools: [getWeather],
  onPermission: permissionRules({
    customTool({ action }) {
      console.log(`permission ${action.value.toolName}`);
      return "approve-for-session";
    },
    otherwise: reject("Only the tools of this program are permitted."),
  }),
});
console.log(`session ${session.id}`);

const turn = session.run(process.argv[2] ?? "What is the weather in Paris?");
for await (const item of turn) {
  if (isGap(item)) continue;
  const { data } = item.event ?? {};
  if (data?.case === "assistantMessage" && data.value.content) console.log(`assistant: ${data.value.content}`);
}
const outcome = await turn.outcome();
console.log(outcome.status);
