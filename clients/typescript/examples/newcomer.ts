// Has turns in a session, which continues where an earlier run left it.
//
//   node build/examples/newcomer.js SESSION PROMPT...
import { writeFile } from "node:fs/promises";
import { connect, defineTool, type PermissionRequest, reject } from "@copilot-grpc/client/node";
import { z } from "zod";

const getWeather = defineTool({
  name: "get_weather",
  description: "Tells the weather in a city.",
  parameters: z.object({ city: z.string() }),
  handler: ({ city }) => `rain in ${city}`,
});

let asked = false;
function once({ kind }: PermissionRequest) {
  const again = asked;
  asked = true;
  console.log(again ? "refused" : "approved", kind);
  return again ? reject("Once is enough.") : "approve";
}

const [id = "", ...prompts] = process.argv.slice(2);
await using client = await connect();
await using session = await client.openSession(id, { tools: [getWeather], onPermission: once });
for (const prompt of prompts) {
  const turn = session.run(prompt);
  for await (const text of turn.deltas()) process.stdout.write(text);
  const outcome = await turn.outcome();
  console.log(`\n${outcome.status} ${outcome.error?.message ?? ""}`);
}
for await (const found of client.listSessions()) console.log(found.id, "is", found.state);
await writeFile("session.tar.gz", client.exportSession(session.id));
