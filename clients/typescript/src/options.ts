import type { CallbackHandlers } from "./handlers.js";
import { randomId } from "./async.js";
import type { FileSystemProvider } from "./filesystem.js";
import type { ModelTransport } from "./modeltransport.js";
import type { ConnectionChange, Declaration } from "./participant.js";
import type {
  AttachStartInit,
  ConfigField,
  CreateInit,
  HandlersInit,
  ResumeInit,
  RuntimeProfile,
  SessionConfig,
  ToolDefinition,
} from "./proto.js";
import { Lifetime, OnInterruption, SessionConfigSchema } from "./proto.js";
import type { Tool } from "./tool.js";

/** Options of a participant: its tools, its handlers and its connection. */
export interface ParticipantOptions extends CallbackHandlers {
  /** The tools that this participant executes. */
  tools?: readonly Tool[] | undefined;
  /** Number of tool calls that run at once; further calls wait. Default 16. */
  maxConcurrentTools?: number | undefined;
  /** Name for users and logs; default: the client's. */
  name?: string | undefined;
  /** Time for which the server keeps the participation after a broken connection: up to an hour; default 30,000. */
  graceMs?: number | undefined;
  /** Receives changes of the connection. */
  onConnection?: ((change: ConnectionChange) => void) | undefined;
  /** Slash commands that only this participant executes, with `onCommand`. */
  commands?: AttachStartInit["commands"] | undefined;
  /** Canvases that only this participant shows, with the handlers `canvasOpen`, `canvasClose` and `canvasAction`. */
  canvases?: AttachStartInit["canvases"] | undefined;
  /** Identity of this participant as a provider of canvases; stable across reconnections. */
  canvasProvider?: AttachStartInit["canvasProvider"] | undefined;
  /** Identity of this participant as an extension. */
  extensionInfo?: AttachStartInit["extensionInfo"] | undefined;
  /** Ends the opening of the session. It has no effect afterwards. */
  signal?: AbortSignal | undefined;
}

/**
 * Options of a session that is created, resumed or opened. On a resume, options that are set change the session; those
 * for new sessions are ignored.
 */
export interface SessionOptions extends ParticipantOptions {
  /** The model's id; default: the CLI's. */
  model?: string | undefined;
  /** Working directory on the server's machine. */
  workingDirectory?: string | undefined;
  /** The agent's messages also arrive as they are generated. Default: `config.streaming`, or else true. */
  streaming?: boolean | undefined;
  /** Every other setting of the session: provider, instructions, MCP servers and so on. */
  config?: SessionConfig | undefined;
  /**
   * Fields of `config` to clear, such as `["mcpServers"]`: a list or map becomes empty, any other field is removed. An
   * empty list or map in `config` changes nothing. Fields with a value in `config` are set. A session that is created
   * loses the values that the server gives to new sessions.
   */
  clear?: readonly ConfigField[] | undefined;
  /** Name of a model provider in the server's configuration, instead of `config.provider`. */
  providerRef?: string | undefined;
  /** "keep" (the default) until it is disconnected or deleted, or until the last participant leaves. */
  lifetime?: "keep" | "end_with_last_participant" | undefined;
  /**
   * The server's reaction to a turn that ends with its CLI process: it reports that ("report", the default), or also
   * tells the agent to continue, at most three times in a row.
   */
  interruptedTurns?: "report" | "continue" | undefined;
  /** Callbacks that wait for `resolve` even if no participant handles them. */
  sessionHandlers?: HandlersInit | undefined;
  /** Time for which callbacks wait for an answer; default: the server's. */
  callbackTimeoutMs?: number | undefined;
  /** Profile of the CLI process, as far as the server permits. */
  runtimeProfile?: RuntimeProfile | undefined;
  /** Makes the call idempotent across restarts of this program; default: a random id. */
  requestId?: string | undefined;
  /** Provides the session's files, instead of the server's disk. */
  fileSystem?: FileSystemProvider | undefined;
  /** Makes the session's model requests in this program: `fetch`, or a function like it. */
  modelTransport?: ModelTransport | undefined;
  /** Of a new session: labels by which `listSessions` and other filters find it; see `Session.updateLabels`. */
  labels?: Record<string, string> | undefined;
  /** Of a new session: labels that its server must have, as in a cluster whose replicas have different directories. */
  nodeLabels?: Record<string, string> | undefined;
  /** Of a new session: its repository in GitHub's cloud. */
  cloud?: CreateInit["cloud"] | undefined;
  /** On a resume: keeps the tool calls and permission requests that were pending when the session was unloaded. */
  continuePendingWork?: boolean | undefined;
  /** On a resume: open canvases to restore, and other options. */
  resume?: ResumeInit["options"] | undefined;
}

/** Options of a session that is created. */
export interface CreateOptions extends SessionOptions {
  /** The session's id: letters, digits, "-" and "_"; default: a random UUID. */
  id?: string | undefined;
}

type StartSession = NonNullable<AttachStartInit["session"]>;

/** The start of a session that is created. `owned` are the tools of the session. */
export function createStart(
  options: CreateOptions,
  owned: ToolDefinition[],
  handlers: HandlersInit | undefined,
): StartSession {
  return {
    case: "create",
    value: defined({
      ...sharedFields(options, owned, handlers),
      sessionId: options.id,
      labels: options.labels,
      nodeLabels: options.nodeLabels,
      cloud: options.cloud,
    }),
  };
}

/** The start of a session that is resumed. */
export function resumeStart(
  id: string,
  options: SessionOptions,
  owned: ToolDefinition[],
  handlers: HandlersInit | undefined,
): StartSession {
  return {
    case: "resume",
    value: defined({
      ...sharedFields(options, owned, handlers),
      sessionId: id,
      continuePendingWork: options.continuePendingWork,
      options: options.resume,
    }),
  };
}

function sharedFields(options: SessionOptions, owned: ToolDefinition[], handlers: HandlersInit | undefined) {
  return {
    requestId: options.requestId ?? randomId(),
    config: sessionConfig(options, owned),
    updateMask: options.clear?.length ? { paths: options.clear.map(configPath) } : undefined,
    providerRef: options.providerRef,
    lifetime: options.lifetime && (options.lifetime === "keep" ? Lifetime.KEEP : Lifetime.END_WITH_LAST_PARTICIPANT),
    onInterruption:
      options.interruptedTurns &&
      (options.interruptedTurns === "report" ? OnInterruption.REPORT : OnInterruption.CONTINUE),
    handlers: options.sessionHandlers ?? handlers,
    callbackTimeout: options.callbackTimeoutMs === undefined ? undefined : durationMs(options.callbackTimeoutMs),
    runtimeProfile: runtimeProfile(options),
  };
}

/** The path of a field in an update mask. The server refuses names that are no fields. */
function configPath(field: string): string {
  return SessionConfigSchema.fields.find(({ localName }) => localName === field)?.name ?? field;
}

function sessionConfig(options: SessionOptions, owned: ToolDefinition[]): SessionConfig {
  const { config, model, workingDirectory } = options;
  const streaming = options.streaming ?? config?.streaming ?? (options.clear?.includes("streaming") ? undefined : true);
  const tools = [...(config?.tools ?? []), ...owned];
  return { ...config, ...defined({ model, workingDirectory, streaming }), ...(tools.length > 0 ? { tools } : {}) };
}

function runtimeProfile({
  runtimeProfile: profile,
  fileSystem,
  modelTransport,
}: SessionOptions): RuntimeProfile | undefined {
  if (!fileSystem && !modelTransport) return profile;
  return {
    ...profile,
    ...(fileSystem && !profile?.sessionFs ? { sessionFs: fileSystem.declaration } : {}),
    ...(modelTransport && !profile?.modelInference ? { modelInference: {} } : {}),
  };
}

/** What every start frame of a participant says. */
export function declaration(options: ParticipantOptions, clientName: string): Declaration {
  return defined({
    name: options.name ?? clientName,
    grace: options.graceMs === undefined ? undefined : durationMs(options.graceMs),
    commands: options.commands,
    canvases: options.canvases,
    canvasProvider: options.canvasProvider,
    extensionInfo: options.extensionInfo,
  });
}

/** Milliseconds as google.protobuf.Duration. */
export function durationMs(ms: number): { seconds: bigint; nanos: number } {
  return { seconds: BigInt(Math.floor(ms / 1000)), nanos: Math.round((ms % 1000) * 1e6) };
}

/** The object without members that are undefined. */
export function defined<T extends object>(value: T): { [K in keyof T]: Exclude<T[K], undefined> } {
  return Object.fromEntries(Object.entries(value).filter(([, member]) => member !== undefined)) as {
    [K in keyof T]: Exclude<T[K], undefined>;
  };
}
