// The functions of a case's program.
import {
  abstain,
  binary,
  type Call,
  type CallbackHandlers,
  type ConnectionChange,
  defineTool,
  type PermissionDecision,
  type PermissionRequest,
  reject,
  rejected,
  type ConfigField,
  type SessionOptions,
  type Tool,
  ToolError,
} from "@copilot-grpc/client";
import type {
  Answer,
  Behaviour,
  Handlers,
  Open,
  Permission,
  Provider,
  Tool as ToolMessage,
} from "./gen/copilot/conformance/v1/conformance_pb.js";
import type { CaseRunner } from "./runner.js";

/** The arguments of every tool. */
const parameters = {
  type: "object",
  properties: { city: { type: "string", description: "a city" }, days: { type: "integer" } },
  required: ["city"],
  additionalProperties: false,
} as const;

export function toolsOf(runner: CaseRunner, session: string, tools: ToolMessage[]): Tool[] {
  return tools.map(({ name, behaviour, skipPermission, ownedBySession, declaredOnly }) =>
    defineTool({
      name,
      description: "Tells about a city.",
      parameters,
      skipPermission,
      ownedBySession,
      ...(declaredOnly
        ? {}
        : {
            handler: async (query, call) => {
              const observation = runner.observe(session, "tool", name, JSON.stringify(query));
              if (!behaviour) return undefined;
              await runner.gate(observation, behaviour.gate, call.signal);
              return behave(behaviour, String(query["city"]));
            },
          }),
    }),
  );
}

function behave({ result }: Behaviour, city: string): unknown {
  switch (result.case) {
    case "text":
      return result.value;
    case "template":
      return result.value.replaceAll("{city}", city);
    case "json":
      return JSON.parse(result.value) as unknown;
    case "failure":
      throw new ToolError(result.value);
    case "rejected":
      return rejected(result.value);
    case "binary":
      return binary(result.value.data, result.value.mimeType, result.value.text);
    case "exception":
      throw new Error(result.value);
    case "abstain":
      return abstain;
    case "unencodable":
      return cycle();
    default:
      return undefined;
  }
}

/** A value that JSON cannot hold. */
function cycle(): unknown {
  const self: { self?: unknown } = {};
  self.self = self;
  return self;
}

/** A value that programs without type checks may give in the place of a text. No text can be made of it. */
const noText = Symbol("no text") as unknown as string;

export function optionsOf(runner: CaseRunner, open: Open): SessionOptions {
  const { session, provider, streaming, continuePendingWork, endWithLastParticipant } = open;
  const { callbackTimeoutMs, graceMs, commands, labels } = open;
  // Programs name the fields as TypeScript does.
  const clear = open.clear.map((name) => name.replace(/_./g, ([, c]) => c!.toUpperCase())) as ConfigField[];
  return {
    tools: toolsOf(runner, session, open.tools),
    ...handlersOf(runner, session, open.handlers),
    onConnection: (change) => {
      const name = connectionName(change);
      if (name) runner.observe(session, "connection", name);
    },
    ...(commands.length > 0 ? { commands: commands.map((name) => ({ name, description: "a command" })) } : {}),
    ...(graceMs > 0 ? { graceMs } : {}),
    ...(callbackTimeoutMs > 0 ? { callbackTimeoutMs } : {}),
    ...(continuePendingWork ? { continuePendingWork } : {}),
    ...(open.continueInterruptedTurns ? { interruptedTurns: "continue" } : {}),
    ...(endWithLastParticipant ? { lifetime: "end_with_last_participant" } : {}),
    ...(Object.keys(labels).length > 0 ? { labels } : {}),
    ...(clear.length > 0 ? { clear } : {}),
    ...(streaming === undefined ? {} : { streaming }),
    ...(provider ? providerOptions(provider, open.workingDirectory) : {}),
  };
}

function providerOptions({ baseUrl, model, tokenByCallback }: Provider, workingDirectory: string): SessionOptions {
  const secret = tokenByCallback ? { hasBearerTokenProvider: true } : { apiKey: "offline" };
  return {
    model,
    workingDirectory,
    // 1 is OPENAI, and COMPLETIONS.
    config: { skipCustomInstructions: true, provider: { providerType: 1, wireApi: 1, baseUrl, ...secret } },
  };
}

function connectionName(change: ConnectionChange): string | undefined {
  if (change.type === "participant_expired") return "expired";
  return change.type === "closed" ? undefined : change.type;
}

function handlersOf(runner: CaseRunner, session: string, handlers: Handlers | undefined): CallbackHandlers {
  if (!handlers) return {};
  const answer = async ({ text, gate, exception }: Answer, kind: string, name: string, call: Call) => {
    await runner.gate(runner.observe(session, kind, name), gate, call.signal);
    if (exception) throw new Error(text);
    return text;
  };
  const { permission, userInput, elicitation, exitPlanMode, autoModeSwitch, command, raw } = handlers;
  const { providerToken, githubToken, preToolUse, postToolUse, userPromptSubmitted } = handlers;
  return {
    ...(permission && {
      onPermission: async (request: PermissionRequest) => {
        await runner.gate(
          runner.observe(session, "permission", request.kind),
          permission.gate,
          request.signal,
        );
        return decide(permission, request.kind);
      },
    }),
    ...(userInput && { onUserInput: ({ question }, call) => answer(userInput, "user_input", question, call) }),
    ...(elicitation && {
      onElicitation: ({ message }) => {
        runner.observe(session, "elicitation", message);
        if (elicitation.unencodable) return { accept: { name: noText } };
        return elicitation.action === "accept"
          ? { accept: elicitation.content }
          : (elicitation.action as "decline" | "cancel");
      },
    }),
    ...(exitPlanMode && {
      onExitPlanMode: ({ summary }) => {
        runner.observe(session, "exit_plan_mode", summary);
        return exitPlanMode.approved;
      },
    }),
    ...(autoModeSwitch && {
      onAutoModeSwitch: async (_request, call) =>
        (await answer(autoModeSwitch, "auto_mode_switch", "", call)) as "yes" | "yes-always" | "no",
    }),
    ...(command && {
      onCommand: async ({ commandName }, call) => {
        await answer(command, "command", commandName, call);
      },
    }),
    ...(providerToken && { onProviderToken: (_request, call) => answer(providerToken, "provider_token", "", call) }),
    ...(githubToken && {
      onGitHubToken: async (_request, call) => ({
        token: await answer(githubToken, "github_token", "", call),
        expiresInSeconds: 3600,
      }),
    }),
    hooks: {
      ...(preToolUse && {
        preToolUse: async ({ toolName }, call) => {
          const decision = await answer(preToolUse, "hook", `preToolUse ${toolName}`, call);
          if (preToolUse.unencodable) return { additionalContext: noText };
          return (decision || undefined) as "deny" | undefined;
        },
      }),
      ...(postToolUse && {
        postToolUse: ({ toolName }) => void runner.observe(session, "hook", `postToolUse ${toolName}`),
      }),
      ...(userPromptSubmitted && {
        userPromptSubmitted: ({ prompt }) => void runner.observe(session, "hook", `userPromptSubmitted ${prompt}`),
      }),
    },
    ...(raw && {
      onRaw: {
        [raw.method]: (params) => {
          runner.observe(session, "raw", raw.method, JSON.stringify(params));
          return raw.unencodable ? cycle() : (JSON.parse(raw.resultJson) as unknown);
        },
      },
    }),
  };
}

function decide({ rules }: Permission, kind: string): PermissionDecision {
  const rule = rules.find((each) => each.kind === "" || each.kind === kind);
  switch (rule?.decision) {
    case "approve":
    case "approve-for-session":
      return rule.decision;
    case "reject":
      return reject(rule.feedback);
    case "exception":
      throw new Error(rule.feedback);
    default:
      return abstain;
  }
}
