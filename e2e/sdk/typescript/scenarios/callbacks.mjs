// What the CLI asks of a program besides tools and permissions.
import { check, failure, persisted, Recorder, turn, until } from "../stage.mjs";

async function question(stage, answer, choices) {
  const asked = [];
  const session = await stage.client().createSession(stage.config({
    onUserInputRequest: (request, invocation) => {
      asked.push({ ...request, ...invocation });
      return answer(request);
    },
  }));
  const seen = new Recorder(session);
  const told = await turn(session, `use ask_user ${JSON.stringify({ question: "Which way?", choices })}`);
  return { told, asked, persisted: await persisted(session), input: seen.data("user_input.requested").length };
}

export const input_choice = (stage) => question(stage, ({ choices }) => ({ answer: choices[1], wasFreeform: false }), ["left", "right"]);
export const input_free = (stage) => question(stage, () => ({ answer: "up", wasFreeform: true }));
export const input_throws = (stage) => question(stage, () => { throw new Error("nobody at home"); });

export async function input_without_handler(stage) {
  const session = await stage.client().createSession(stage.config());
  await turn(session, "hello");
  return { offered: (await stage.requests())[0].tools.includes("ask_user") };
}

export async function elicitation(stage) {
  const asked = [];
  const answers = [
    { action: "accept", content: { confirmed: true } }, { action: "accept", content: { selection: "blue" } }, { action: "accept", content: { value: "Ann" } },
    { action: "accept", content: { name: "Ann", age: 7, tags: ["a", "b"], ok: false } }, { action: "decline" }, { action: "cancel" },
  ];
  const session = await stage.client().createSession(stage.config({
    onElicitationRequest: (context) => {
      asked.push(context);
      return answers[asked.length - 1];
    },
  }));
  check(session.capabilities.ui?.elicitation, "elicitation is offered");
  const { ui } = session;
  const form = { message: "Who are you?", requestedSchema: { type: "object", properties: { name: { type: "string" }, age: { type: "integer" }, tags: { type: "array", items: { type: "string", enum: ["a", "b"] } }, ok: { type: "boolean" } }, required: ["name"] } };
  return {
    confirm: await ui.confirm("Sure?"), select: await ui.select("Which?", ["red", "blue"]), input: await ui.input("Name?", { minLength: 1 }),
    form: await ui.elicitation(form), declined: await ui.confirm("Sure?"), cancelled: await ui.input("Name?"), asked, persisted: await persisted(session),
  };
}

export async function elicitation_without_handler(stage) {
  const session = await stage.client().createSession(stage.config());
  return { capabilities: session.capabilities, refused: await failure(() => session.ui.confirm("Sure?")) };
}

export async function elicitation_throws(stage) {
  const session = await stage.client().createSession(stage.config({ onElicitationRequest: () => { throw new Error("no"); } }));
  return { outcome: await failure(() => session.ui.elicitation({ message: "?", requestedSchema: { type: "object", properties: { a: { type: "string" } } } })) };
}

export async function commands(stage) {
  const ran = [];
  const session = await stage.client().createSession(stage.config({
    commands: [
      { name: "deploy", description: "Ships it", handler: (context) => { ran.push(context); } },
      { name: "break", description: "Breaks", handler: () => { throw new Error("broken"); } },
    ],
  }));
  const seen = new Recorder(session);
  const listed = (await session.rpc.commands.list()).commands.filter((c) => ["deploy", "break"].includes(c.name));
  const invoke = (name, input) => failure(() => session.rpc.commands.invoke({ name, input }));
  return { listed, deploy: await invoke("deploy", "to the moon"), broken: await invoke("break"), unknown: await invoke("no-such-command"), ran, kinds: [...new Set(seen.events.map((e) => e.type))].sort() };
}

async function plan(stage, decide) {
  const asked = [];
  const session = await stage.client().createSession(stage.config({
    onExitPlanModeRequest: (request, invocation) => {
      asked.push({ ...request, ...invocation });
      return decide(request);
    },
  }));
  const seen = new Recorder(session);
  await session.rpc.plan.update({ content: "# The plan\n1. Go.\n" });
  const told = await turn(session, { prompt: 'use exit_plan_mode {"summary":"We go."}', agentMode: "plan" });
  return { told, asked, mode: await session.rpc.mode.get(), completed: seen.data("exit_plan_mode.completed"), persisted: await persisted(session) };
}

export const plan_approved = (stage) => plan(stage, () => ({ approved: true, selectedAction: "interactive" }));
export const plan_refused = (stage) => plan(stage, () => ({ approved: false, feedback: "too short" }));

export async function auto_mode_switch(stage) {
  const asked = [];
  const client = stage.client(stage.github({ gitHubToken: "token-of-alice" }));
  const { provider: _, ...config } = stage.config();
  const session = await client.createSession({ ...config, onAutoModeSwitchRequest: (request) => { asked.push(request); return "no"; } });
  const seen = new Recorder(session);
  const outcome = await failure(() => turn(session, "switch to auto"));
  return { outcome, asked, completed: seen.data("auto_mode_switch.completed").map((d) => d.response) };
}

export async function callbacks_with_abort(stage) {
  let asked;
  const came = until("the question", (done) => { asked = done; });
  const session = await stage.client().createSession(stage.config({ onUserInputRequest: () => new Promise(() => { asked(); }) }));
  const seen = new Recorder(session);
  const idle = seen.next("session.idle");
  await session.send({ prompt: 'use ask_user {"question":"Which way?"}' });
  await came;
  await session.abort();
  await idle;
  return { persisted: await persisted(session) };
}
