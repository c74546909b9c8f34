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
 * each break.
 */
export async function* follow(
  events: Client<typeof EventService>,
  cursor: MessageInitShape<typeof SessionCursorSchema> & { sessionId: string },
  broken: (why: string, after: Position | undefined) => void = () => {},
): AsyncGenerator<SubscribeResponse> {
  let after: Position | undefined;
  for (let failures = 0; ; failures++) {
    let why = "the server ended it";
    try {
      for await (const frame of events.subscribe({ sessions: [after ? { ...cursor, after } : cursor] })) {
        failures = 0;
        yield frame;
        if (frame.frame.case === "closed") return;
        after = reached(frame) ?? after;
      }
    } catch (thrown) {
      const error = ConnectError.from(thrown);
      // A connection that breaks is UNAVAILABLE, or ABORTED in the middle of a stream.
      if (error.code !== Code.Unavailable && error.code !== Code.Aborted) throw error;
      why = error.message;
    }
    broken(why, after);
    await sleep(pauses[Math.min(failures, pauses.length - 1)]);
  }
}

/** How far a frame takes its reader; undefined when it says nothing about that. */
function reached({ frame }: SubscribeResponse): Position | undefined {
  switch (frame.case) {
    case "events":
      return frame.value.events.at(-1)?.position;
    case "heartbeat":
    case "caughtUp":
      return frame.value.position;
    case "gap":
      return frame.value.to;
    default:
      return undefined;
  }
}
