// run.mjs NAME plays a scenario and prints its record, one line of JSON; without a name it
// lists those there are, with what they need.
import { Stage } from "./stage.mjs";
import * as callbacks from "./scenarios/callbacks.mjs";
import * as connections from "./scenarios/connections.mjs";
import * as hooks from "./scenarios/hooks.mjs";
import * as life from "./scenarios/life.mjs";
import * as mcp from "./scenarios/mcp.mjs";
import * as prompts from "./scenarios/prompts.mjs";
import * as providers from "./scenarios/providers.mjs";
import * as sessions from "./scenarios/sessions.mjs";
import * as surface from "./scenarios/surface.mjs";
import * as tools from "./scenarios/tools.mjs";
import * as turns from "./scenarios/turns.mjs";

const scenarios = Object.assign({}, turns, sessions, tools, callbacks, hooks, prompts, mcp, providers, connections, life, surface);

const name = process.argv[2];
if (!name) {
  console.log(Object.keys(scenarios).join("\n"));
  process.exit();
}
const stage = new Stage();
let status = 0;
try {
  console.log(JSON.stringify(await scenarios[name](stage)));
} catch (error) {
  console.error(error);
  status = 1;
}
await stage.close();
process.exit(status);
