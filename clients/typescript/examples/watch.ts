// A watcher that survives restarts: it prints one line for each event until the turn has ended, and stores its position
// after each line. Interrupt the connection, the server or the watcher itself: the next line is the next event.
//
//   node build/examples/watch.js SESSION_ID POSITION_FILE
import { existsSync, readFileSync, writeFileSync } from "node:fs";
import { connect, formatPosition, isGap, parsePosition } from "@copilot-grpc/client/node";

const [sessionId = "", file = ""] = process.argv.slice(2);
const logger = { debug() {}, error: console.error, warn: (message: string) => console.log(message) };
await using client = await connect({ name: "watcher", logger });

const from = existsSync(file) ? parsePosition(readFileSync(file, "utf8")) : "beginning";
// With the large events, positions follow each other without a gap.
for await (const item of client.session(sessionId).events({ from, filter: { includeLarge: true } })) {
  if (isGap(item)) {
    console.log(`gap up to ${formatPosition(item.through)}`);
    continue;
  }
  console.log(`event ${formatPosition(item.position)} ${item.event?.eventType}`);
  writeFileSync(file, formatPosition(item.position));
  if (item.event?.eventType === "session.idle") break;
}
