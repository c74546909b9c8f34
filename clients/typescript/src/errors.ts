import { BinaryReader, WireType } from "@bufbuild/protobuf/wire";
import { Code, ConnectError } from "@connectrpc/connect";
import { ErrorReason, type Failure } from "#gen/copilot/bridge/v1/error_pb.js";
import * as proto from "./proto.js";
import { type CloseReason, wordOf } from "./words.js";

/** Names of the server's reasons, such as "SESSION_NOT_FOUND". */
export type Reason = Exclude<keyof typeof ErrorReason, "UNSPECIFIED">;

/** Domain of the error details of copilot-grpc. */
const domain = "copilot-grpc";

/** Properties of a {@link CopilotError}. */
export interface CopilotErrorInit {
  code: Code;
  message: string;
  reason?: string | undefined;
  field?: string | undefined;
  metadata?: Record<string, string> | undefined;
  retryAfterMs?: number | undefined;
}

/** An error of the server, or of the connection to it. */
export class CopilotError extends Error {
  override readonly name: string = "CopilotError";
  /** The gRPC status code. */
  readonly code: Code;
  /** The message alone, without reason, field and remedy. */
  readonly rawMessage: string;
  /**
   * The server's reason. Undefined if the error does not come from the server, for example for a broken connection.
   * A reason that is newer than this library is a string outside of {@link Reason}.
   */
  readonly reason: Reason | (string & {}) | undefined;
  /** Path of the invalid field in the request. */
  readonly field: string | undefined;
  /** Further details: `session_id`, `callback_id`, `method` and others. */
  readonly metadata: Readonly<Record<string, string>>;
  /** Time to wait before a retry; 0 if the server does not state one. */
  readonly retryAfterMs: number;

  constructor(init: CopilotErrorInit) {
    const where = init.field ? ` (field ${JSON.stringify(init.field)})` : "";
    const remedy = init.code === Code.Unauthenticated ? tokenRemedy : "";
    super(`${init.reason ?? codeName(init.code)}${where}: ${init.message}${remedy}`);
    this.code = init.code;
    this.rawMessage = init.message;
    this.reason = init.reason;
    this.field = init.field;
    this.metadata = init.metadata ?? {};
    this.retryAfterMs = init.retryAfterMs ?? 0;
    hideProperties(this);
  }
}

const tokenRemedy = ": give a token with the option token of connect, or in Node.js set COPILOT_GRPC_TOKEN";

/**
 * Makes the properties of an error non-enumerable. Node.js prints enumerable ones below the stack of an uncaught error,
 * where the message is enough.
 */
export function hideProperties(error: Error): void {
  for (const key of Object.keys(error)) Object.defineProperty(error, key, { enumerable: false });
}

/** The server ended the session's use: the session was disconnected or deleted, or the participant was replaced. */
export class SessionClosedError extends Error {
  override readonly name: string = "SessionClosedError";
  readonly sessionId: string;
  readonly reason: CloseReason;

  constructor(sessionId: string, closed: proto.SubscriptionClosed) {
    const reason = wordOf(proto.CloseReason, closed.reason);
    super(`session ${JSON.stringify(sessionId)} is closed: ${reason}`);
    this.sessionId = sessionId;
    this.reason = reason;
    hideProperties(this);
  }
}

/** The client or the session was closed by this program. */
export class ClosedError extends Error {
  override readonly name: string = "ClosedError";
}

/** The target is not a copilot-grpc server, or its version is not supported. */
export class IncompatibleServerError extends Error {
  override readonly name: string = "IncompatibleServerError";
}

/** Reports whether an error of the server has one of the reasons. */
export function isReason(error: unknown, ...reasons: Reason[]): error is CopilotError {
  return error instanceof CopilotError && reasons.some((reason) => error.reason === reason);
}

/** Converts the error of a call. Errors that are not of a call are returned unchanged. */
export function toCopilotError(error: unknown): Error {
  if (error instanceof ConnectError) return fromConnect(error);
  return error instanceof Error ? error : new Error(String(error));
}

/** Converts an error inside a stream that continues. */
export function fromFailure(failure: Failure | undefined): CopilotError {
  return new CopilotError({
    code: failure?.code ?? Code.Unknown,
    message: failure?.message ?? "the server reported a failure without details",
    reason: failure && failure.reason !== ErrorReason.UNSPECIFIED ? reasonName(failure.reason) : undefined,
    field: failure?.field || undefined,
    metadata: failure?.metadata,
  });
}

/** An error of a connection that broke without a status. */
export function unavailable(message: string): CopilotError {
  return new CopilotError({ code: Code.Unavailable, message });
}

/**
 * Reports whether a stream ended without a decision of the server, and can be opened again. A broken connection is
 * reported under several codes, but only the server gives a reason.
 */
export function isBroken(error: unknown): boolean {
  if (!(error instanceof CopilotError)) return false;
  if (error.code === Code.Unavailable || isTokenReplaced(error)) return true;
  return error.reason === undefined && brokenCodes.has(error.code);
}

/** Errors of calls whose token the server refused, while the program has another one now. */
const replaced = new WeakSet<Error>();

/** Notes that the token of a refused call has been replaced. */
export function markTokenReplaced(error: ConnectError): void {
  replaced.add(error);
}

/** Reports whether a call failed without an answer of the server. */
export function isUnreached(error: unknown): error is CopilotError {
  return error instanceof CopilotError && error.reason === undefined && isBroken(error);
}

/** Reports whether the server refused a token that has been replaced: a reason for one attempt with the new one. */
export function isTokenReplaced(error: unknown): boolean {
  return error instanceof Error && replaced.has(error);
}

const brokenCodes = new Set([Code.Canceled, Code.Aborted, Code.Unknown, Code.Internal, Code.DeadlineExceeded]);

function fromConnect(error: ConnectError): CopilotError {
  const found: CopilotErrorInit = { code: codeOf(error), message: error.rawMessage };
  for (const detail of error.details) {
    if (!("type" in detail)) continue;
    if (detail.type === "google.rpc.ErrorInfo") Object.assign(found, readErrorInfo(detail.value));
    if (detail.type === "google.rpc.BadRequest") found.field = readBadRequest(detail.value) ?? found.field;
    if (detail.type === "google.rpc.RetryInfo") found.retryAfterMs = readRetryInfo(detail.value);
  }
  // Proxies may remove the details, but not the trailers.
  found.reason ??= error.metadata.get("copilot-reason") ?? undefined;
  found.field ??= error.metadata.get("copilot-field") ?? found.metadata?.["field"];
  const converted = new CopilotError(found);
  if (replaced.has(error)) replaced.add(converted);
  return converted;
}

/** The code of an error. A fetch that does not reach the server fails with a TypeError, which has no code. */
function codeOf(error: ConnectError): Code {
  const unreached = error.code === Code.Unknown && error.cause instanceof TypeError && /fetch/i.test(error.cause.message);
  return unreached ? Code.Unavailable : error.code;
}

/** Calls `take` for every field of a message; fields that it does not read are skipped. */
function eachField(bytes: Uint8Array, take: (field: number, reader: BinaryReader) => boolean): void {
  const reader = new BinaryReader(bytes);
  while (reader.pos < reader.len) {
    const [field, type] = reader.tag();
    if (!take(field, reader)) reader.skip(type as WireType, field);
  }
}

function readErrorInfo(bytes: Uint8Array): Pick<CopilotErrorInit, "reason" | "metadata"> {
  let [reason, from] = ["", ""];
  const metadata: Record<string, string> = {};
  eachField(bytes, (field, reader) => {
    if (field === 1) reason = reader.string();
    else if (field === 2) from = reader.string();
    else if (field === 3) {
      let [key, value] = ["", ""];
      eachField(reader.bytes(), (part, entry) => {
        if (part === 1) key = entry.string();
        else if (part === 2) value = entry.string();
        else return false;
        return true;
      });
      metadata[key] = value;
    } else return false;
    return true;
  });
  return from === domain ? { reason, metadata } : {};
}

function readBadRequest(bytes: Uint8Array): string | undefined {
  let path: string | undefined;
  eachField(bytes, (field, reader) => {
    if (field !== 1) return false;
    eachField(reader.bytes(), (part, violation) => {
      if (part !== 1) return false;
      path ??= violation.string();
      return true;
    });
    return true;
  });
  return path;
}

function readRetryInfo(bytes: Uint8Array): number {
  let ms = 0;
  eachField(bytes, (field, reader) => {
    if (field !== 1) return false;
    eachField(reader.bytes(), (part, delay) => {
      if (part === 1) ms += Number(delay.int64()) * 1000;
      else if (part === 2) ms += delay.int32() / 1e6;
      else return false;
      return true;
    });
    return true;
  });
  return ms;
}

function reasonName(reason: ErrorReason): string {
  return ErrorReason[reason] ?? `ERROR_REASON_${String(reason)}`;
}

function codeName(code: Code): string {
  return (Code[code] ?? String(code)).replaceAll(/(?<=[a-z])(?=[A-Z])/g, "_").toUpperCase();
}
