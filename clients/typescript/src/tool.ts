import { create, isMessage, type MessageInitShape } from "@bufbuild/protobuf";
import type { Call } from "./call.js";
import { errorText } from "./logger.js";
import { type Answer, type AnswerInit, AnswerSchema, type ToolDefinition } from "./proto.js";
import { argumentSchema, type JsonSchema, type SchemaOutput, type StandardSchema } from "./schema.js";

/** Returned by a handler that does not answer: other participants may. */
export const abstain: unique symbol = Symbol("copilot-grpc.abstain");
/** The type of {@link abstain}. */
export type Abstain = typeof abstain;

type ToolAnswerInit = Extract<NonNullable<AnswerInit["answer"]>, { case: "tool" }>["value"];
type ToolResultInit = Extract<NonNullable<ToolAnswerInit["outcome"]>, { case: "result" }>["value"];

/** A complete result of a tool. {@link toolResult} and its short forms make one. */
export class ToolResult {
  /** @internal */
  readonly fields: ToolResultInit;

  /** @internal */
  constructor(fields: ToolResultInit) {
    this.fields = fields;
  }
}

/** A result with every field that the CLI has: text, kind of result, files, telemetry. */
export function toolResult(fields: ToolResultInit): ToolResult {
  return new ToolResult(fields);
}

/** The tool failed; the model reads the text. */
export function failure(text: string): ToolResult {
  return new ToolResult({ textResultForLlm: text, resultType: "failure", error: text });
}

/** A tool throws it to tell the model what went wrong: the model reads its message. It does not read that of others. */
export class ToolError extends Error {
  override readonly name: string = "ToolError";
}

/** The user rejected the action of the tool; the model reads the text. */
export function rejected(text: string): ToolResult {
  return new ToolResult({ textResultForLlm: text, resultType: "rejected" });
}

/** The action of the tool is not permitted; the model reads the text. */
export function denied(text: string): ToolResult {
  return new ToolResult({ textResultForLlm: text, resultType: "denied" });
}

/** Text with a file or an image. */
export function binary(data: Uint8Array, mimeType: string, text = ""): ToolResult {
  const type = mimeType.startsWith("image/") ? BinaryType.image : BinaryType.resource;
  return new ToolResult({
    textResultForLlm: text,
    resultType: "success",
    binaryResultsForLlm: [{ binaryType: type, data, mimeType }],
  });
}

/** Values of ExternalToolTextResultForLlmBinaryResultsForLlmType. */
const BinaryType = { image: 1, resource: 2 } as const;

/** A tool as the agent sees it, with the function that executes it. {@link defineTool} makes one. */
export interface Tool {
  /** The definition for the agent. */
  readonly definition: ToolDefinition & { name: string };
  /**
   * The tool belongs to the session and not to the participant: it stays when the participant leaves. It is declared
   * where the session is created or resumed. A participant that joins only offers to execute it.
   */
  readonly ownedBySession: boolean;
  /** Executes a call. Undefined for a tool that is only declared: its calls wait for `Session.resolve`. */
  readonly execute: ((argumentsJson: string, call: ToolCall) => Promise<unknown>) | undefined;
}

/** A call of a tool. */
export interface ToolCall extends Call {
  /** The id that the model gave the call. */
  readonly toolCallId: string;
  readonly toolName: string;
  /** The session's working directory on the server's machine. */
  readonly workingDirectory: string | undefined;
}

/** Options of {@link defineTool}. */
export interface ToolOptions<Args, P> {
  /** Letters, digits, "-" and "_"; unique in the session. */
  name: string;
  /** What the tool does, for the model. */
  description: string;
  /** The arguments: a Standard Schema or a JSON Schema. Default: no arguments. */
  parameters?: P;
  /** The JSON Schema of `parameters`, for libraries that do not derive one. */
  jsonSchema?: JsonSchema;
  /** Executes the tool. The README lists the results. Omit it to answer calls with `Session.resolve`. */
  handler?: (args: Args, call: ToolCall) => unknown;
  /** The agent may call the tool without a permission request. */
  skipPermission?: boolean;
  /** The tool replaces a built-in tool of the same name. */
  overridesBuiltIn?: boolean;
  /** See {@link Tool.ownedBySession}. */
  ownedBySession?: boolean;
  /** Further fields of the definition. */
  definition?: Partial<ToolDefinition>;
}

type ArgsOf<P> = P extends StandardSchema ? SchemaOutput<P> : Record<string, unknown>;

/**
 * Makes a tool from a function. Arguments that do not match `parameters` are answered with the violations in words, and
 * the handler is not called. Throws a TypeError if `parameters` has no JSON Schema of an object.
 */
export function defineTool<const P extends StandardSchema | JsonSchema = JsonSchema>(
  options: ToolOptions<ArgsOf<P>, P>,
): Tool {
  if (!/^[a-zA-Z0-9_-]+$/.test(options.name)) {
    throw new TypeError(`the tool name ${JSON.stringify(options.name)} must consist of letters, digits, "-" and "_"`);
  }
  const schema = argumentSchema<ArgsOf<P>>(options.parameters, options.jsonSchema);
  const { handler } = options;
  return {
    definition: {
      ...options.definition,
      name: options.name,
      description: options.description,
      parametersJson: schema.json,
      ...(options.skipPermission === undefined ? {} : { skipPermission: options.skipPermission }),
      ...(options.overridesBuiltIn === undefined ? {} : { overridesBuiltInTool: options.overridesBuiltIn }),
    },
    ownedBySession: options.ownedBySession ?? false,
    execute:
      handler &&
      (async (argumentsJson, call) => {
        const args = await schema.check(argumentsJson);
        if (!args.ok) return failure(`The arguments do not fit: ${args.violations}`);
        return handler(args.value, call);
      }),
  };
}

/** Converts a handler's result. Throws a TypeError if the result cannot be encoded. */
export function toolAnswer(result: unknown): Answer {
  return create(AnswerSchema, toolAnswerInit(result));
}

function toolAnswerInit(result: unknown): MessageInitShape<typeof AnswerSchema> {
  if (result === abstain) return { answer: { case: "abstain", value: {} } };
  if (isMessage(result, AnswerSchema)) return result;
  // The CLI would take an answer without a result for a failure.
  if (result === undefined || result === null) return tool({ outcome: { case: "text", value: "Done." } });
  if (typeof result === "string") return tool({ outcome: { case: "text", value: result } });
  if (result instanceof ToolResult) return tool({ outcome: { case: "result", value: result.fields } });
  const text = JSON.stringify(result, (_key, value: unknown) =>
    typeof value === "bigint" ? value.toString() : value,
  ) as string | undefined;
  if (text === undefined) throw new TypeError(`a ${typeof result} cannot be the result of a tool`);
  return tool({ outcome: { case: "text", value: text } });
}

/** The answer of a tool that threw. Only the message of a {@link ToolError} is for the model; others are for the record. */
export function toolFailed(error: unknown): Answer {
  const text = errorText(error);
  return toolAnswer(error instanceof ToolError ? failure(text) : failedWith("The tool failed.", text));
}

/** The answer of a tool whose result cannot be encoded. */
export function toolUnencodable(error: unknown): Answer {
  return toolAnswer(failedWith("The tool ran, but its result cannot be encoded as JSON.", errorText(error)));
}

function failedWith(text: string, record: string): ToolResult {
  return new ToolResult({ textResultForLlm: text, resultType: "failure", error: record });
}

function tool(value: ToolAnswerInit): AnswerInit {
  return { answer: { case: "tool", value } };
}

/** Arranges tools by name. Throws a TypeError if a name occurs twice. */
export function toolsByName(tools: readonly Tool[]): Map<string, Tool> {
  const byName = new Map<string, Tool>();
  for (const entry of tools) {
    if (byName.has(entry.definition.name))
      throw new TypeError(`two tools have the name ${JSON.stringify(entry.definition.name)}`);
    byName.set(entry.definition.name, entry);
  }
  return byName;
}

/** The definitions of the session's tools, or of the participant's, in a stable order for the model's cache. */
export function definitions(tools: Map<string, Tool>, ownedBySession: boolean): ToolDefinition[] {
  return [...tools.values()]
    .filter((entry) => entry.ownedBySession === ownedBySession)
    .map((entry) => entry.definition)
    .sort((a, b) => (a.name < b.name ? -1 : 1));
}
