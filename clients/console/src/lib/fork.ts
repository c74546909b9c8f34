import { type Client, isGap, type Session } from "@copilot-grpc/client";
import { peopleKinds } from "./sessions.js";

/** Opens a stored or disconnected session again; its requests wait for people. */
export async function reopen(client: Client, sessionId: string): Promise<void> {
  await client.rpc.sessions.resumeSession({
    requestId: crypto.randomUUID(),
    sessionId,
    config: { streaming: true },
    handlers: { permission: true, kinds: [...peopleKinds] },
  });
}

/**
 * Copies a session: its whole history, or what was before a prompt. Returns the id of the copy.
 *
 * The call is plain JSON: the messages of the CLI's own services would make the console a tenth larger.
 */
export async function fork(client: Client, session: Session, beforeMessage = ""): Promise<string> {
  const toEventId = beforeMessage ? await eventOf(session, beforeMessage) : "";
  const reply = await fetch("/copilot.cli.v1.SessionsService/Fork", {
    method: "POST",
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify({ sessionId: session.id, ...(toEventId ? { toEventId } : {}) }),
  });
  const body = (await reply.json()) as { sessionId?: string; message?: string };
  if (!reply.ok || !body.sessionId) throw new Error(body.message ?? `the server answered with status ${reply.status}`);
  await reopen(client, body.sessionId);
  return body.sessionId;
}

/** The id of the event of a prompt. */
async function eventOf(session: Session, messageId: string): Promise<string> {
  for await (const item of session.history({ types: ["user.message"] })) {
    if (isGap(item) || item.event?.data.case !== "userMessage") continue;
    if (item.event.data.value.messageId === messageId || item.event.id === messageId) return item.event.id;
  }
  throw new Error("the prompt is not stored any more");
}
