// The rest of what a program can ask: every question that needs no arguments is asked, of
// a session and of the server, and what is answered, or how it is refused, is written down.
import { failure, turn } from "../stage.mjs";

// asks tells questions from deeds by their names.
const asks = /^(get|list|read|is|has|pending|snapshot|discover|tail|activity|contextInfo|plan|current|last)/;
// What is not the same twice, even from one and the same CLI: what it measures, and lists
// of what happens to run on the machine.
const changing = /^(usage\.getMetrics|metadata\.(contextInfo|getContextAttribution|getContextHeaviestMessages|snapshot)|eventLog\..*|debug\..*|sessions\.(findBy.*|getRemoteControlStatus))$/;

// questions walks the namespaces of an API of the SDK.
function* questions(api, path = "") {
  for (const [name, member] of Object.entries(api)) {
    const full = path ? `${path}.${name}` : name;
    if (typeof member === "object" && member !== null) yield* questions(member, full);
    else if (typeof member === "function" && asks.test(name)) yield [full, member];
  }
}

// shape is a value with the kinds of its numbers in place of them, since those are sizes.
function shape(value) {
  if (Array.isArray(value)) return value.map(shape);
  if (typeof value === "number") return "number";
  if (value && typeof value === "object") return Object.fromEntries(Object.keys(value).sort().map((k) => [k, shape(value[k])]));
  return value;
}

async function survey(api) {
  const record = {};
  for (const [name, ask] of questions(api)) {
    const answer = await failure(() => ask({}));
    record[name] = changing.test(name) && answer.succeeded ? Object.keys(answer.succeeded).sort() : shape(answer);
  }
  return record;
}

export async function questions_to_a_session(stage) {
  const session = await stage.client().createSession(stage.config());
  await turn(session, "hello");
  return survey(session.rpc);
}

export async function questions_to_the_server(stage) {
  const client = stage.client();
  await client.start();
  return survey(client.rpc);
}
