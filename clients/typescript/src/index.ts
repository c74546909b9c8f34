/**
 * Sessions of the GitHub Copilot CLI over copilot-grpc. This module runs in Node.js and in browsers; `connect` is in
 * `@copilot-grpc/client/node` and `@copilot-grpc/client/web`.
 *
 * @packageDocumentation
 */
export { attachBytes, attachDirectory, attachPath, attachStream, StreamAttachment } from "./attachments.js";
export type { ByteSource, PromptAttachment } from "./attachments.js";
export { bearer } from "./auth.js";
export type { Token } from "./auth.js";
export type { ReconnectPolicy } from "./backoff.js";
export { WithdrawnError } from "./call.js";
export type { Call } from "./call.js";
export type { AroundCallback } from "./calls.js";
export { Client } from "./client.js";
export type { ClientOptions } from "./client.js";
export {
  ClosedError,
  CopilotError,
  IncompatibleServerError,
  isReason,
  SessionClosedError,
  toCopilotError,
} from "./errors.js";
export type { Reason } from "./errors.js";
export { isGap } from "./events.js";
export type { EventOrGap, EventsOptions, Gap } from "./events.js";
export { provideFiles } from "./filesystem.js";
export type { FileStat, FileSystem, FileSystemProvider } from "./filesystem.js";
export type { AnswerOf, CallbackHandlers, FieldValue, HandledCase, Handler, Hooks, RawHandler, RequestOf } from "./handlers.js";
export type { PendingCallback, PendingChange, PendingEnd, WatchPendingOptions } from "./inbox.js";
export type { Logger } from "./logger.js";
export { answerRaw } from "./handlers.js";
export { SessionInfo } from "./info.js";
export type { SessionChange } from "./info.js";
export type { ModelTransport } from "./modeltransport.js";
export type { CreateOptions, ParticipantOptions, SessionOptions } from "./options.js";
export type { ConnectionChange } from "./participant.js";
export {
  approveAll,
  Decision,
  decision,
  firstOf,
  permissionAnswer as answerPermission,
  permissionRules,
  reject,
} from "./permission.js";
export type { PermissionDecision, PermissionHandler, PermissionRequest, PermissionRules } from "./permission.js";
export { Code } from "@connectrpc/connect";
export { comparePositions, formatPosition, parsePosition } from "./position.js";
export type { RunOptions, SendOptions, TurnOptions, WaitOptions } from "./prompt.js";
export { CallbackService, EventService, RawService, RuntimeService, SessionService } from "./proto.js";
export type {
  Answer,
  AnswerInit,
  Attachment,
  Callback,
  ConfigField,
  Event,
  EventFilter,
  GapMessage,
  GetServerInfoResponse,
  HandlersInit,
  Position,
  PromptInit,
  RuntimeProfile,
  SessionConfig,
  SessionMessage,
  StreamOptions,
  SubscribeResponse,
  ToolDefinition,
  TurnOutcome,
  UsageRow,
  WatchSessionsResponse,
} from "./proto.js";
export type { JsonSchema, SchemaOutput, StandardResult, StandardSchema } from "./schema.js";
export { Session } from "./session.js";
export type { Services } from "./session.js";
export {
  abstain,
  binary,
  defineTool,
  denied,
  failure,
  rejected,
  toolAnswer as answerTool,
  ToolError,
  ToolResult,
  toolResult,
} from "./tool.js";
export type { Abstain, Tool, ToolCall, ToolOptions } from "./tool.js";
export { OutcomeError, Turn } from "./turn.js";
export type { Outcome, OutcomeData, TurnFailure } from "./turn.js";
export { supportedServers } from "./version.js";
export type {
  CallbackKind,
  CallbackOutcome,
  CloseReason,
  GapReason,
  SessionChangeKind,
  SessionState,
} from "./words.js";
export type { ImportOptions } from "./transfer.js";
export type { SessionSelection, UsageDimension, UsageOptions } from "./usage.js";
