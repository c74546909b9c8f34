import { setTimeout as sleep } from "node:timers/promises";
import type { MessageInitShape } from "@bufbuild/protobuf";
import { Code, ConnectError, type Client } from "@connectrpc/connect";
import type { EventService, SubscribeResponse } from "#gen/copilot/bridge/v1/event_service_pb.js";
import type { SessionCursorSchema } from "#gen/copilot/bridge/v1/event_service_pb.js";
import type { Position } from "#gen/copilot/bridge/v1/session_pb.js";

/** How long to wait before connecting again: longer each time nothing came. */
const pauses = [0.1, 0.5, 1, 2, 5].map((seconds) => seconds * 1000);

/**
 * Follows a session through broken connections and servers that restart: each time the
 * stream breaks, it is opened again after the last position seen. It ends with the
 * session's `closed` frame, and throws what does not pass by itself. `broken` hears of
 * each break, and throws to give up.
 */
export async function* follow(
  events: Client<typeof EventService>,
  cursor: MessageInitShape<typeof SessionCursorSchema> & { sessionId: string },
  broken: (why: string, after: Position | undefined) => void = () => {},
): AsyncGenerator<SubscribeResponse> {
  let after: Position | undefined;
  for (let failures = 0; ; failures++) {
    let why = "the server ended it";
    const call = new AbortController();
    try {
      const sessions = [after ? { ...cursor, after } : cursor];
      for await (const frame of events.subscribe({ sessions }, { signal: call.signal })) {
        failures = 0;
        yield frame;
        if (frame.frame.case === "closed") return;
        after = frame.resumeAfter ?? after;
      }
    } catch (thrown) {
      const error = ConnectError.from(thrown);
      if (!passes(error)) throw error;
      why = error.message;
    } finally {
      // Leaving the loop alone leaves the call open, and the program running.
      call.abort();
    }
    broken(why, after);
    await sleep(pauses[Math.min(failures, pauses.length - 1)]);
  }
}

/** What Node.js makes of connections that break and of servers that are not there. */
const connectionCodes = new Set([Code.Aborted, Code.Canceled, Code.Internal, Code.Unknown]);

/** Whether trying again can help. What the server itself says, it says with details. */
function passes(error: ConnectError): boolean {
  if (error.code === Code.Unavailable) return true;
  return error.details.length === 0 && connectionCodes.has(error.code);
}
