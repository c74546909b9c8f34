// The generated messages that this library uses, under one name each.
import type { MessageInitShape } from "@bufbuild/protobuf";
import type { AnswerSchema, CallbackSchema, HandlersSchema } from "#gen/copilot/bridge/v1/callback_pb.js";
import type { AttachStartSchema } from "#gen/copilot/bridge/v1/callback_service_pb.js";
import type { EventFilterSchema, StreamOptionsSchema } from "#gen/copilot/bridge/v1/event_service_pb.js";
import type { ModelResponseSchema } from "#gen/copilot/bridge/v1/model_response_pb.js";
import type { PromptSchema } from "#gen/copilot/bridge/v1/session_pb.js";
import type {
  CreateSessionRequestSchema,
  ResumeSessionRequestSchema,
} from "#gen/copilot/bridge/v1/session_service_pb.js";

export { CallbackKind, CallbackOutcome, CallbackSchema, AnswerSchema } from "#gen/copilot/bridge/v1/callback_pb.js";
export type { Answer, Callback, CallbackRequested, CallbackResolved } from "#gen/copilot/bridge/v1/callback_pb.js";
export { AttachRequestSchema, CallbackService } from "#gen/copilot/bridge/v1/callback_service_pb.js";
export type { AttachRequest, AttachResponse, WatchPendingResponse } from "#gen/copilot/bridge/v1/callback_service_pb.js";
export { ErrorReason } from "#gen/copilot/bridge/v1/error_pb.js";
export {
  CloseReason,
  EventService,
  GapReason,
  SessionChange,
  StreamStart,
} from "#gen/copilot/bridge/v1/event_service_pb.js";
export type {
  SubscriptionStarted,
  SubscriptionClosed,
  Event,
  Gap as GapMessage,
  GoAway,
  SubscribeResponse,
  WatchSessionsResponse,
} from "#gen/copilot/bridge/v1/event_service_pb.js";
export { RawService } from "#gen/copilot/bridge/v1/raw_service_pb.js";
export { RuntimeService } from "#gen/copilot/bridge/v1/runtime_service_pb.js";
export type { GetServerInfoResponse } from "#gen/copilot/bridge/v1/runtime_service_pb.js";
export {
  Lifetime,
  OnInterruption,
  PositionSchema,
  SessionSchema,
  SessionState,
  TurnStatus,
} from "#gen/copilot/bridge/v1/session_pb.js";
export type { Position, Session as SessionMessage, TurnOutcome } from "#gen/copilot/bridge/v1/session_pb.js";
export { SessionService, UsageGroup } from "#gen/copilot/bridge/v1/session_service_pb.js";
export { SessionConfigSchema } from "#gen/copilot/cli/v1/session_types_pb.js";
export type {
  ExportSessionResponse,
  ImportSessionResponse,
  UsageRow,
} from "#gen/copilot/bridge/v1/session_service_pb.js";

/** The answer to a callback. */
export type AnswerInit = MessageInitShape<typeof AnswerSchema>;
export type AttachStartInit = InitOnly<MessageInitShape<typeof AttachStartSchema>>;
export type CallbackInit = MessageInitShape<typeof CallbackSchema>;
export type CreateInit = InitOnly<MessageInitShape<typeof CreateSessionRequestSchema>>;
export type ResumeInit = InitOnly<MessageInitShape<typeof ResumeSessionRequestSchema>>;
/** Which events a stream has. */
export type EventFilter = InitOnly<MessageInitShape<typeof EventFilterSchema>>;
/** The form of the events of a stream, and its heartbeats. */
export type StreamOptions = InitOnly<MessageInitShape<typeof StreamOptionsSchema>>;
/** The callbacks that a session or a participant handles. */
export type HandlersInit = MessageInitShape<typeof HandlersSchema>;
export type ModelResponseInit = MessageInitShape<typeof ModelResponseSchema>;
/** A prompt with all its options. */
export type PromptInit = InitOnly<MessageInitShape<typeof PromptSchema>>;
/** The session's configuration: model, provider, instructions, directories and so on. */
export type SessionConfig = InitOnly<NonNullable<CreateInit["config"]>>;
/** A field of the session's configuration. */
export type ConfigField = Exclude<keyof SessionConfig, "jsonExtra">;
/** The environment of the CLI process of a session. */
export type RuntimeProfile = InitOnly<NonNullable<CreateInit["runtimeProfile"]>>;
/** A tool as the CLI knows it. */
export type ToolDefinition = InitOnly<NonNullable<AttachStartInit["tools"]>[number]>;
/** An attachment of a prompt. */
export type Attachment = NonNullable<PromptInit["attachments"]>[number];
/** The initializers of a message, without the message itself. */
export type InitOnly<T> = Exclude<T, { $typeName: string }>;
