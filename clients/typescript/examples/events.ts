// Prints what happens in a session, from its beginning until its turn is over, one event a
// line. It lives through broken connections: cut one, and it goes on where it was.
//
//   node dist/examples/events.js ADDRESS SESSION_ID
import { createClient } from "@connectrpc/connect";
import { EventService } from "#gen/copilot/bridge/v1/event_service_pb.js";
import type { Position } from "#gen/copilot/bridge/v1/session_pb.js";
import { follow } from "../src/follow.js";
import { connectTo } from "../src/transport.js";

const [address = "", sessionId = ""] = process.argv.slice(2);
const events = createClient(EventService, connectTo(address, process.env.COPILOT_GRPC_TOKEN));

const at = (p?: Position) => `${p?.epoch ?? 0}/${p?.seq ?? 0}`;

async function main(): Promise<void> {
  // Everything, also the heavy types that are left out by default: positions then follow
  // each other without a gap.
  const cursor = { sessionId, filter: { includeHeavy: true } };
  const broken = (why: string, after?: Position) => console.log(`broken after ${at(after)}: ${why}`);
  for await (const { frame } of follow(events, cursor, broken)) {
    switch (frame.case) {
      case "events":
        for (const { position, event } of frame.value.events) {
          console.log(`event ${at(position)} ${event?.type}`);
          if (event?.type === "session.idle") return;
        }
        break;
      case "gap":
        console.log(`gap ${at(frame.value.after)} to ${at(frame.value.through)}`);
        break;
      case "closed":
        console.log("closed");
        break;
    }
  }
}

await main();
