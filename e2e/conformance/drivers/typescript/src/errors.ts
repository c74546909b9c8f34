// Names of errors.
import { create } from "@bufbuild/protobuf";
import {
  ClosedError,
  CopilotError,
  IncompatibleServerError,
  SessionClosedError,
} from "@copilot-grpc/client";
import { type Error as CaseError, Error_Kind, ErrorSchema } from "./gen/copilot/conformance/v1/conformance_pb.js";
import { Unsupported } from "./runner.js";

/** The names of gRPC's codes, by number. */
const codes =
  "OK CANCELLED UNKNOWN INVALID_ARGUMENT DEADLINE_EXCEEDED NOT_FOUND ALREADY_EXISTS PERMISSION_DENIED RESOURCE_EXHAUSTED FAILED_PRECONDITION ABORTED OUT_OF_RANGE UNIMPLEMENTED INTERNAL UNAVAILABLE DATA_LOSS UNAUTHENTICATED".split(
    " ",
  );

/** Tells what kind of error it is. */
export function errorOf(error: unknown, signal: AbortSignal): CaseError {
  const message = error instanceof Error ? error.message : String(error);
  if (signal.aborted && error === signal.reason) return create(ErrorSchema, { kind: Error_Kind.CANCELLED, message });
  if (error instanceof Unsupported) return create(ErrorSchema, { kind: Error_Kind.UNSUPPORTED, message });
  if (error instanceof IncompatibleServerError) return create(ErrorSchema, { kind: Error_Kind.INCOMPATIBLE, message });
  if (error instanceof ClosedError) return create(ErrorSchema, { kind: Error_Kind.CLOSED, message });
  if (error instanceof SessionClosedError) {
    const reason = error.reason.toUpperCase();
    return create(ErrorSchema, { kind: Error_Kind.SESSION_CLOSED, reason, message });
  }
  if (error instanceof CopilotError) {
    const { reason = "", field = "" } = error;
    return create(ErrorSchema, { kind: Error_Kind.STATUS, code: codes[error.code] ?? "", reason, field, message });
  }
  return create(ErrorSchema, { kind: Error_Kind.USAGE, message });
}
