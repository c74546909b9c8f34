// Talks to an agent and asks you for permissions. With the argument `worker` it brings the agent's tool instead.
import { createInterface } from "node:readline/promises";
import { connect, defineTool, type PermissionRequest, reject } from "@copilot-grpc/client/node";
import { z } from "zod";

const terminal = createInterface({ input: process.stdin, output: process.stdout, terminal: false });

const getWeather = defineTool({
  name: "get_weather",
  description: "Tells the weather in a city.",
  parameters: z.object({ city: z.string() }),
  handler({ city }) {
    console.log("get_weather runs for", city);
    return `rain in ${city}`;
  },
});

async function ask({ kind }: PermissionRequest) {
  const answer = await terminal.question(`\nAllow ${kind}? [y/n] `);
  return answer === "y" ? "approve" : reject("The user said no.");
}

await using client = await connect();
if (process.argv[2] === "worker") {
  await using session = await client.joinSession("weather", { tools: [getWeather] });
  await terminal.question(`The worker of ${session.id} is ready. Press Enter to end it.\n`);
} else {
  await using session = await client.openSession("weather", { onPermission: ask });
  for (let prompt = await terminal.question("> "); prompt; prompt = await terminal.question("> ")) {
    const turn = session.run(prompt);
    for await (const text of turn.deltas()) process.stdout.write(text);
    console.log();
    (await turn.outcome()).orThrow();
  }
}
terminal.close();
