// The system message: what a program adds to it, takes away, and changes on the way.
import { failure, persisted, turn } from "../stage.mjs";

// system is what of the system message a scenario looks at.
async function system(stage, systemMessage, look) {
  const session = await stage.client().createSession(stage.config({ systemMessage }));
  await turn(session, "hello");
  const text = (await stage.requests()).at(-1).system;
  return { ...look(text), persisted: await persisted(session) };
}

export const system_append = (stage) => system(stage, { content: "Speak like a pirate." }, (text) => ({ ours: text.includes("Speak like a pirate."), theirs: text.length > 2000 }));
export const system_replace = (stage) => system(stage, { mode: "replace", content: "You are a parrot." }, (text) => ({ ours: text.includes("You are a parrot."), short: text.length < 2000 }));
export const system_sections = (stage) => system(stage, {
  mode: "customize", content: "At the end.",
  sections: { tone: { action: "replace", content: "Be terse, matey." }, code_change_rules: { action: "remove" }, guidelines: { action: "append", content: "Mind the parrot." }, safety: { action: "prepend", content: "Safety first, sailor." } },
}, (text) => ({ tone: text.includes("Be terse, matey."), appended: text.includes("Mind the parrot."), prepended: text.includes("Safety first, sailor."), content: text.includes("At the end.") }));

export async function system_transform(stage) {
  const given = [];
  const record = await system(stage, {
    mode: "customize",
    sections: { tone: { action: (text) => { given.push(text.length > 0); return "Sing it."; } }, identity: { action: (text) => `${text}\nAnd a poet.` } },
  }, (text) => ({ tone: text.includes("Sing it."), identity: text.includes("And a poet.") }));
  return { ...record, given };
}

export const system_transform_throws = (stage) => system(stage, { mode: "customize", sections: { tone: { action: () => { throw new Error("out of words"); } } } }, (text) => ({ whole: text.length > 2000 }));

export async function system_after_resume(stage) {
  const client = stage.client();
  const first = await client.createSession(stage.config({ systemMessage: { content: "Speak like a pirate." } }));
  await turn(first, "hello");
  await first.disconnect();
  const session = await client.resumeSession(first.sessionId, stage.config({ systemMessage: { content: "Speak like a judge." } }));
  await turn(session, "again");
  const text = (await stage.requests()).at(-1).system;
  return { pirate: text.includes("pirate"), judge: text.includes("judge") };
}

export async function custom_agents(stage) {
  const session = await stage.client().createSession(stage.config({
    customAgents: [{ name: "poet", displayName: "Poet", description: "Writes verse", prompt: "You rhyme.", tools: ["view"], infer: true }], agent: "poet",
  }));
  await turn(session, "hello");
  const { agents } = await session.rpc.agent.list();
  const current = await session.rpc.agent.getCurrent();
  await session.rpc.agent.deselect();
  return {
    agents, current, after: await session.rpc.agent.getCurrent(), unknown: await failure(() => session.rpc.agent.select({ name: "nobody" })),
    rhymes: (await stage.requests()).at(-1).system.includes("You rhyme."), persisted: await persisted(session),
  };
}

export async function sub_agent(stage) {
  const session = await stage.client().createSession(stage.config({ streaming: true, customAgents: [{ name: "poet", description: "Writes verse", prompt: "You rhyme.", tools: [] }] }));
  const answer = await failure(() => turn(session, 'use task {"agent_type":"poet","description":"Write a verse","prompt":"a verse, please","name":"verse","mode":"sync"}'));
  const types = await persisted(session);
  // In which order it is selected and configured is not the same twice.
  return { answer, subagent: types.filter((t) => t.startsWith("subagent.")).sort(), counts: types.length };
}
