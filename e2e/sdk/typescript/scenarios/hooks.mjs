// Hooks: all kinds, what they are given, and what their answers do.
import { defineTool } from "@github/copilot-sdk";
import { check, failure, persistedHooked, Recorder, turn } from "../stage.mjs";

const tool = () => defineTool("get_weather", {
  description: "What the weather is like", parameters: { type: "object", properties: { city: { type: "string" } } },
  handler: ({ city }) => { if (city === "nowhere") throw new Error("no such place"); return `sunny in ${city}`; },
});

const kinds = ["PreToolUse", "PostToolUse", "PostToolUseFailure", "UserPromptSubmitted", "UserPromptTransformed", "SessionStart", "SessionEnd", "ErrorOccurred", "AgentStop"];

// hooked has hooks of every kind, of which some answer.
async function hooked(stage, answers, prompt, more = {}) {
  const called = [];
  const hooks = Object.fromEntries(kinds.map((kind) => [`on${kind}`, (input) => {
    const { timestamp, transformedPrompt, ...rest } = input;
    if (rest.toolResult) rest.toolResult = { ...rest.toolResult, toolTelemetry: undefined };
    called.push([kind, { ...rest, at: timestamp instanceof Date, transformed: transformedPrompt !== undefined }]);
    return answers[kind]?.(input, called.filter(([k]) => k === kind).length);
  }]));
  const session = await stage.client().createSession(stage.config({ tools: [tool()], hooks, ...more }));
  const seen = new Recorder(session);
  const answer = await failure(() => turn(session, prompt));
  const record = { answer, persisted: await persistedHooked(session), results: seen.data("tool.execution_complete").map((d) => [d.success, d.result, d.error]), users: seen.data("user.message").map((d) => d.content) };
  await session.disconnect();
  // After a failure the CLI ends the session's hooks while the caller learns of it: which comes first is a matter of time.
  const ends = ([kind]) => kind === "SessionEnd";
  return { ...record, called: called.filter((call) => !ends(call)), ended: called.filter(ends).map(([, input]) => input) };
}

const ask = 'use get_weather {"city":"Paris"}';

export const hooks_all = (stage) => hooked(stage, {}, ask);
export const hooks_failing_tool = (stage) => hooked(stage, {}, 'use get_weather {"city":"nowhere"}');
export const hooks_deny = (stage) => hooked(stage, { PreToolUse: () => ({ permissionDecision: "deny", permissionDecisionReason: "not before lunch" }) }, ask);
export const hooks_allow = (stage) => hooked(stage, { PreToolUse: () => ({ permissionDecision: "allow" }) }, ask, { onPermissionRequest: () => ({ kind: "reject" }) });
export const hooks_ask = (stage) => hooked(stage, { PreToolUse: () => ({ permissionDecision: "ask", permissionDecisionReason: "better ask" }) }, ask);
export const hooks_change_arguments = (stage) => hooked(stage, { PreToolUse: () => ({ permissionDecision: "allow", modifiedArgs: { city: "Rome" } }) }, ask);
export const hooks_change_result = (stage) => hooked(stage, { PostToolUse: () => ({ modifiedResult: { textResultForLlm: "it snows", resultType: "success" } }) }, ask);
export const hooks_add_context = (stage) => hooked(stage, { PreToolUse: () => ({ additionalContext: "a note" }), PostToolUse: () => ({ additionalContext: "another" }), UserPromptSubmitted: () => ({ additionalContext: "and one more" }) }, ask);
export const hooks_change_prompt = (stage) => hooked(stage, { UserPromptSubmitted: () => ({ modifiedPrompt: "good evening" }) }, "hello");
export const hooks_throw = (stage) => hooked(stage, { PreToolUse: () => { throw new Error("the hook broke"); }, PostToolUse: () => { throw new Error("this one, too"); } }, ask);
export const hooks_agent_stop = (stage) => hooked(stage, { AgentStop: (_, n) => (n === 1 ? { decision: "block", reason: "say more" } : undefined) }, "hello");
export const hooks_model_error = (stage) => hooked(stage, {}, "fail 400");

export async function hooks_after_resume(stage) {
  const client = stage.client();
  const first = await client.createSession(stage.config());
  await turn(first, "hello");
  await first.disconnect();
  const called = [];
  const session = await client.resumeSession(first.sessionId, stage.config({ hooks: { onSessionStart: (input) => { called.push(input.source); }, onUserPromptSubmitted: (input) => { called.push(input.prompt); } } }));
  await turn(session, "again");
  check(called.includes("again"), "the hook was called");
  return { called, persisted: await persistedHooked(session) };
}
