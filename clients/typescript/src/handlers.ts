import { create } from "@bufbuild/protobuf";
import type { Call } from "./call.js";
import { errorText, type Logger } from "./logger.js";
import { type PermissionHandler, permissionAnswer, permissionRequest } from "./permission.js";
import {
  type Answer,
  type AnswerInit,
  AnswerSchema,
  type Callback,
  CallbackKind,
  CallbackSchema,
  type HandlersInit,
  type ToolDefinition,
} from "./proto.js";
import { type Abstain, abstain, definitions, type Tool, type ToolCall, toolAnswer, toolFailed, toolUnencodable } from "./tool.js";

type Request = Callback["request"];
type AnswerCase = NonNullable<AnswerInit["answer"]>;
type SharedCase = NonNullable<Extract<Request["case"], AnswerCase["case"]>>;

/** The request of a kind of callback, by the name of its case. */
export type RequestOf<C extends Request["case"]> = Extract<Request, { case: C }>["value"];
/** The answer to a kind of callback. */
export type AnswerOf<C extends SharedCase> = Extract<AnswerCase, { case: C }>["value"];
/** Answers a kind of callback. `abstain` leaves it to other participants; an exception is sent as an error. */
export type Handler<C extends SharedCase> = (request: RequestOf<C>, call: Call) => Awaitable<AnswerOf<C> | Abstain>;

export type Awaitable<T> = T | Promise<T>;

/** The kinds of callbacks that {@link CallbackHandlers.handlers} takes. */
export type HandledCase = Exclude<SharedCase, "permission" | "raw">;

/** Answers a callback without a type, from a CLI that is newer than this library. The result is sent as JSON. */
export type RawHandler = (params: unknown, call: Call) => Awaitable<unknown>;

type HookInput = RequestOf<"hook">["data"];
type HookOutput = NonNullable<NonNullable<AnswerOf<"hook">>["variant"]>;
type HookName = Exclude<HookInput["case"], undefined | "unrecognized">;
type HookResult<C extends HookName> =
  | (C extends HookOutput["case"] ? Extract<HookOutput, { case: C }>["value"] : never)
  | (C extends "preToolUse" ? "allow" | "deny" | "ask" : never)
  | undefined
  | void;

/**
 * Functions that the agent calls at points of its work. They may observe, change or refuse an action. `undefined` has
 * no effect. An exception, or no answer in time, refuses the tool in `preToolUse` and has no effect elsewhere.
 */
export type Hooks = {
  [C in HookName]?: (input: Extract<HookInput, { case: C }>["value"], call: Call) => Awaitable<HookResult<C>>;
};

/** The value of a field of a form. */
export type FieldValue = string | number | boolean | string[];

/** The handlers of a participant. A kind without a handler gets the server's default answer. */
export interface CallbackHandlers {
  /** Decides on permission requests. */
  onPermission?: PermissionHandler | undefined;
  /** Answers a question of the agent. Without a handler the agent has no tool to ask. */
  onUserInput?:
    ((request: RequestOf<"userInput">, call: Call) => Awaitable<string | AnswerOf<"userInput"> | Abstain>) | undefined;
  /** Fills in a form of a tool or an MCP server. */
  onElicitation?:
    | ((
        request: RequestOf<"elicitation">,
        call: Call,
      ) => Awaitable<{ accept: Record<string, FieldValue> } | "decline" | "cancel" | Abstain>)
    | undefined;
  /** Approves the plan of an agent. */
  onExitPlanMode?:
    | ((request: RequestOf<"exitPlanMode">, call: Call) => Awaitable<boolean | AnswerOf<"exitPlanMode"> | Abstain>)
    | undefined;
  /** Decides whether another model is used when a rate limit is reached. */
  onAutoModeSwitch?:
    | ((request: RequestOf<"autoModeSwitch">, call: Call) => Awaitable<"yes" | "yes-always" | "no" | Abstain>)
    | undefined;
  /** Executes a slash command of `commands` or of the configuration. */
  onCommand?: ((command: RequestOf<"command">, call: Call) => Awaitable<void | Abstain>) | undefined;
  /** Returns the bearer token of a model provider, before each request to it. */
  onProviderToken?: ((request: RequestOf<"providerToken">, call: Call) => Awaitable<string | Abstain>) | undefined;
  /** Returns a GitHub token and its lifetime; undefined refuses. */
  onGitHubToken?:
    | ((
        request: RequestOf<"githubToken">,
        call: Call,
      ) => Awaitable<{ token: string; expiresInSeconds: number } | undefined | Abstain>)
    | undefined;
  /** Returns new texts for sections of the system message; the other sections stay. */
  onSystemMessage?:
    ((sections: Record<string, string>, call: Call) => Awaitable<Record<string, string> | Abstain>) | undefined;
  /** The hooks. */
  hooks?: Hooks | undefined;
  /** Every other kind, by the name of its case in `Callback.request`. */
  handlers?: { [C in HandledCase]?: Handler<C> | undefined } | undefined;
  /** Callbacks without a type, by JSON-RPC method or event type. */
  onRaw?: Record<string, RawHandler> | undefined;
}

type AnyHandler = (request: unknown, call: Call) => Awaitable<AnswerCase | Abstain>;

/** Computes the answer to one callback. It does not throw. */
export type Responder = (call: Call) => Promise<Answer>;

/** The functions of a participant that answer callbacks. */
export class HandlerTable {
  readonly #byCase = new Map<string, AnyHandler>();
  readonly #hooks: Hooks | undefined;
  readonly #raw: Map<string, RawHandler>;
  readonly #logger: Logger;
  tools: Map<string, Tool>;

  constructor(options: CallbackHandlers, tools: Map<string, Tool>, logger: Logger) {
    this.tools = tools;
    this.#logger = logger;
    this.#hooks = options.hooks;
    this.#raw = new Map(Object.entries(options.onRaw ?? {}));
    for (const [name, handler] of Object.entries(options.handlers ?? {}) as [
      HandledCase,
      Handler<HandledCase> | undefined,
    ][]) {
      if (handler) this.add(name, handler);
    }
    this.#addShort(options);
  }

  /** Adds the handler of a kind. Throws a TypeError if there is one already, or if the kind does not exist. */
  add<C extends SharedCase>(name: C, handler: Handler<C>): void {
    if (!kinds.has(name)) throw new TypeError(`there is no kind of callback with the name ${JSON.stringify(name)}`);
    if (this.#byCase.has(name)) throw new TypeError(`two handlers answer ${name}`);
    this.#byCase.set(name, async (request, call) => {
      const value = await handler(request as RequestOf<C>, call);
      if (value === abstain) return abstain;
      if (value === undefined) throw new TypeError(`the handler of ${name} returned nothing`);
      return { case: name, value } as AnswerCase;
    });
  }

  #addShort(options: CallbackHandlers): void {
    const { onUserInput, onElicitation, onExitPlanMode, onAutoModeSwitch, onCommand, onProviderToken, onGitHubToken } =
      options;
    const { onPermission, onSystemMessage, hooks } = options;
    if (onPermission) this.#byCase.set("permission", permissionResponder(onPermission));
    if (onUserInput) {
      this.add("userInput", async (request, call) => {
        const answer = await onUserInput(request, call);
        return typeof answer === "string" ? { answer, wasFreeform: !request.choices.includes(answer) } : answer;
      });
    }
    if (onElicitation)
      this.add("elicitation", async (request, call) => elicitationAnswer(await onElicitation(request, call)));
    if (onExitPlanMode) {
      this.add("exitPlanMode", async (request, call) => {
        const answer = await onExitPlanMode(request, call);
        if (typeof answer !== "boolean") return answer;
        return answer && request.recommendedAction
          ? { approved: answer, selectedAction: request.recommendedAction }
          : { approved: answer };
      });
    }
    if (onAutoModeSwitch) {
      this.add("autoModeSwitch", async (request, call) => {
        const answer = await onAutoModeSwitch(request, call);
        return answer === abstain ? abstain : { response: oneOf(SwitchResponse, answer) };
      });
    }
    if (onCommand)
      this.add("command", async (request, call) => ((await onCommand(request, call)) === abstain ? abstain : {}));
    if (onProviderToken) {
      this.add("providerToken", async (request, call) => {
        const token = await onProviderToken(request, call);
        return token === abstain ? abstain : { token };
      });
    }
    if (onGitHubToken)
      this.add("githubToken", async (request, call) => tokenAnswer(await onGitHubToken(request, call)));
    if (onSystemMessage) {
      this.add("systemMessageTransform", async (request, call) => {
        const before = Object.fromEntries(
          Object.entries(request.sections).map(([name, section]) => [name, section.content]),
        );
        const texts = await onSystemMessage(before, call);
        if (texts === abstain) return abstain;
        const all = Object.entries({ ...before, ...texts }).map(([name, content]) => [name, { content }]);
        return { sections: Object.fromEntries(all) as Record<string, { content: string }> };
      });
    }
    if (hooks && Object.values(hooks).some(Boolean))
      this.#byCase.set("hook", (request, call) => this.#hook(request as RequestOf<"hook">, call));
  }

  async #hook(request: RequestOf<"hook">, call: Call): Promise<AnswerCase> {
    const { data } = request;
    const name = data.case as HookName;
    const hook = this.#hooks?.[name] as ((input: unknown, call: Call) => Awaitable<unknown>) | undefined;
    const output = await hook?.(data.value, call);
    if (output === undefined) return { case: "hook", value: {} };
    const value = typeof output === "string" ? { permissionDecision: oneOf(HookDecision, output) } : output;
    return { case: "hook", value: { variant: { case: name, value } as HookOutput } };
  }

  /**
   * The responder of a callback; undefined if this participant does not answer it. `offered` as in CallbackRequested.
   */
  responder(callback: Callback, offered: boolean): Responder | undefined {
    const { request } = callback;
    if (request.case === "toolCall") return this.#toolResponder(request.value, offered);
    if (!offered || request.case === undefined) return undefined;
    if (request.case === "raw") {
      const handler = this.#raw.get(request.value.method);
      return (
        handler && this.#respond(async (call) => rawAnswer(await handler(parseParams(request.value.paramsJson), call)))
      );
    }
    const handler = this.#byCase.get(request.case);
    return handler && this.#respond((call) => handler(request.value, call), request.case === "command");
  }

  #toolResponder(request: RequestOf<"toolCall">, offered: boolean): Responder | undefined {
    const tool = this.tools.get(request.toolName);
    if (!tool) return offered ? () => Promise.resolve(abstainAnswer) : undefined; // the tool was just removed
    const { execute, ownedBySession } = tool;
    if (!execute || !(offered || ownedBySession)) return undefined;
    return async (call) => {
      // Not by spreading, which would ask for the signal.
      const toolCall: ToolCall = Object.assign(call, {
        toolCallId: request.toolCallId,
        toolName: request.toolName,
        workingDirectory: request.workingDirectory,
      });
      const failed = (error: unknown, answer: Answer) => {
        const { sessionId: session_id, callbackId: callback_id } = call;
        this.#logger.warn("tool failed", { session_id, callback_id, tool: request.toolName, error });
        return answer;
      };
      let result: unknown;
      try {
        result = await execute(request.argumentsJson ?? "", toolCall);
      } catch (error) {
        return failed(error, toolFailed(error));
      }
      try {
        return toolAnswer(result);
      } catch (error) {
        return failed(error, toolUnencodable(error));
      }
    };
  }

  #respond(handle: (call: Call) => Awaitable<AnswerCase | Abstain>, command = false): Responder {
    return async (call) => {
      try {
        const answer = await handle(call);
        return answer === abstain ? abstainAnswer : create(AnswerSchema, { answer });
      } catch (error) {
        const { sessionId: session_id, callbackId: callback_id, kind } = call;
        this.#logger.warn("callback handler failed", { session_id, callback_id, kind, error });
        // Nothing of this program, but for whoever gave the command.
        return errorAnswer(command ? errorText(error) : "The handler failed.");
      }
    };
  }

  /** The definitions of the tools of the session, or of the participant. */
  declared(ownedBySession: boolean): ToolDefinition[] {
    return definitions(this.tools, ownedBySession);
  }

  /** The handlers as the server learns them. */
  announced(): HandlersInit {
    const handled = [...this.#byCase.keys()];
    const hooks = Object.entries(this.#hooks ?? {}).filter(([, hook]) => hook !== undefined);
    return {
      permission: handled.includes("permission"),
      kinds: handled
        .filter((name) => name !== "permission")
        .map((name) => kinds.get(name) as CallbackKind)
        .sort((a, b) => a - b),
      hookTypes: hooks.map(([name]) => name).sort(),
      methods: [...this.#raw.keys()].sort(),
    };
  }
}

/** The kinds by the names of the cases of Callback.request. */
const kinds = new Map<string, CallbackKind>(
  CallbackSchema.oneofs
    .flatMap((oneof) => oneof.fields)
    .map((field): [string, CallbackKind] => [
      field.localName,
      CallbackKind[field.name.toUpperCase() as keyof typeof CallbackKind],
    ]),
);

export const abstainAnswer: Answer = create(AnswerSchema, { answer: { case: "abstain", value: {} } });

/** An error in place of an answer. */
export function errorAnswer(message: string): Answer {
  return create(AnswerSchema, { answer: { case: "error", value: { message } } });
}

function permissionResponder(handler: PermissionHandler): AnyHandler {
  return async (request, call) => {
    const data = request as RequestOf<"permission">;
    return permissionAnswer(await handler(permissionRequest(call, data))).answer as AnswerCase;
  };
}

/** Values of enums of the CLI's messages, whose generated modules the core does not import. */
const SwitchResponse = { yes: 1, "yes-always": 2, no: 3 } as const;
const HookDecision = { allow: 1, deny: 2, ask: 3 } as const;
const ElicitationAction = { accept: 1, decline: 2, cancel: 3 } as const;

function oneOf<T extends Record<string, number>>(values: T, name: string): T[keyof T] {
  if (!Object.hasOwn(values, name))
    throw new TypeError(`not one of ${Object.keys(values).join(", ")}: ${JSON.stringify(name)}`);
  return values[name] as T[keyof T];
}

function elicitationAnswer(
  answer: { accept: Record<string, FieldValue> } | "decline" | "cancel" | Abstain,
): AnswerOf<"elicitation"> | Abstain {
  if (answer === abstain) return abstain;
  if (typeof answer === "string") return { action: oneOf(ElicitationAction, answer) };
  const content = Object.entries(answer.accept).map(([name, value]) => [name, { variant: fieldValue(value) }]);
  return {
    action: ElicitationAction.accept,
    content: Object.fromEntries(content) as NonNullable<AnswerOf<"elicitation">["content"]>,
  };
}

function fieldValue(value: FieldValue) {
  if (typeof value === "string") return { case: "stringValue", value };
  if (typeof value === "number") return { case: "doubleValue", value };
  if (typeof value === "boolean") return { case: "boolValue", value };
  if (Array.isArray(value) && value.every((item) => typeof item === "string"))
    return { case: "list", value: { items: value } };
  throw new TypeError("a field of a form is a text, a number, a boolean or a list of texts");
}

function tokenAnswer(
  answer: { token: string; expiresInSeconds: number } | undefined | Abstain,
): AnswerOf<"githubToken"> | Abstain {
  if (answer === abstain) return abstain;
  if (!answer) return { variant: { case: "cancelled", value: {} } };
  return {
    variant: {
      case: "token",
      value: { accessToken: answer.token, expiresIn: BigInt(Math.round(answer.expiresInSeconds)) },
    },
  };
}

function parseParams(text: string): unknown {
  return text ? (JSON.parse(text) as unknown) : undefined;
}

/** The answer to a callback without a type, for `Session.resolve`: a result as JSON. */
export function answerRaw(result: unknown): Answer {
  return create(AnswerSchema, { answer: rawAnswer(result) as AnswerCase });
}

function rawAnswer(result: unknown): AnswerCase | Abstain {
  if (result === abstain) return abstain;
  return { case: "raw", value: { resultJson: JSON.stringify(result ?? null) } };
}
