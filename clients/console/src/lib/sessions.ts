import type { Client } from "@copilot-grpc/client";
import { CallbackKind } from "@copilot-grpc/client/gen/copilot/bridge/v1/callback_pb";

/** Kinds of callbacks that people answer. */
export const peopleKinds = [
  CallbackKind.PERMISSION,
  CallbackKind.USER_INPUT,
  CallbackKind.ELICITATION,
  CallbackKind.EXIT_PLAN_MODE,
  CallbackKind.AUTO_MODE_SWITCH,
  CallbackKind.SESSION_LIMITS,
  CallbackKind.INSTALLATION_CONFIRM,
] as const;

/** A model to choose. */
export interface ModelChoice {
  readonly id: string;
  readonly name: string;
}

export async function listModels(client: Client): Promise<ModelChoice[]> {
  const { models } = await client.rpc.runtimes.listModels({});
  return models.map(({ id, name }) => ({ id, name: name || id }));
}

/** A session to start. Empty fields are the server's defaults. */
export interface NewSession {
  readonly text: string;
  readonly model: string;
  readonly directory: string;
}

/** Starts a session whose requests wait for people, and sends its first prompt. Returns the id. */
export async function createSession(client: Client, { text, model, directory }: NewSession): Promise<string> {
  const { session } = await client.rpc.sessions.createSession({
    requestId: crypto.randomUUID(),
    config: {
      streaming: true,
      ...(model ? { model } : {}),
      ...(directory ? { workingDirectory: directory } : {}),
    },
    handlers: { permission: true, kinds: [...peopleKinds] },
  });
  const id = session?.sessionId ?? "";
  if (text) await client.session(id).send(text);
  return id;
}
