// The official SDK for Node, as a way to a session: it takes orders by line on standard
// input and answers each with a line of JSON. driver.py does the same for Python.
//
//   send N           N prompts one after the other: the nanoseconds that each took
//   turn PROMPT      a prompt and its turn: the nanoseconds it took as a whole, the text of
//                    the last session.info event, the number of events, and the CPU
//                    microseconds of this process
//   fresh            another session in the place of this one
//   more N           N sessions beside it; a turn is over when it is in all of them
import { createInterface } from "node:readline";
import { CopilotClient, RuntimeConnection, approveAll } from "@github/copilot-sdk";

const [cli, tool, toolResult, config] = process.argv.slice(2);
const client = new CopilotClient({
  connection: RuntimeConnection.forStdio({ path: cli }),
  useLoggedInUser: false,
  logLevel: "none",
});
await client.start();

let session;
let events = 0;
let info = "";
let idle = () => {};
let sessions = 1;
let idles = 0;

// begin begins a session.
async function begin() {
  session = await client.createSession({
    onPermissionRequest: approveAll,
    streaming: true,
    ...JSON.parse(config),
    tools: [{ name: tool, description: "a tool", handler: async () => toolResult }],
  });
  session.on((event) => {
    events++;
    if (event.type === "session.info") info = event.data.message;
    if (event.type === "session.idle" && ++idles === sessions) idle();
  });
}

// turn sends a prompt and returns when its turn is over: how long the sending took, and
// the whole.
async function turn(prompt) {
  idles = 0;
  const over = new Promise((resolve) => {
    idle = resolve;
  });
  const start = process.hrtime.bigint();
  await session.send({ prompt });
  const sent = Number(process.hrtime.bigint() - start);
  await over;
  return { sent, whole: Number(process.hrtime.bigint() - start) };
}

async function obey(line) {
  const [order, rest] = line.split(/ (.*)/);
  if (order === "fresh") {
    await session.disconnect();
    await begin();
    return {};
  }
  if (order === "more") {
    for (let n = Number(rest); n > 0; n--) await begin();
    sessions += Number(rest);
    return {};
  }
  if (order === "send") {
    const took = [];
    for (let n = Number(rest); n > 0; n--) took.push((await turn("hello")).sent);
    return { took };
  }
  events = 0;
  const before = process.cpuUsage();
  const { whole } = await turn(rest);
  const spent = process.cpuUsage(before);
  return { took: [whole], info, events, cpu: spent.user + spent.system };
}

await begin();
console.log(JSON.stringify({ ready: true }));
for await (const line of createInterface({ input: process.stdin })) {
  console.log(JSON.stringify(await obey(line)));
}
await client.stop();
