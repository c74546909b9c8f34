/**
 * A server with a scripted model, for tests of agents without an account and without a network.
 *
 * @packageDocumentation
 */
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { Client } from "../client.js";
import { connect, type ConnectOptions } from "../node/connect.js";
import { type PrivateServer, startServer, type StartOptions } from "../node/server.js";

/** A step of a reply: text, reasoning, a call of a tool, or a pause. */
export type ModelStep =
  | { text: string }
  | { reasoning: string }
  | { tool_call: { name: string; arguments?: Record<string, unknown> | string; id?: string } }
  | { wait: string }
  | { wait_for: string }
  | { hang: true }
  | { drop: true };

/** A rule of a script. docs/offline-model.md describes all conditions and members. */
export interface ModelRule {
  name?: string;
  when?: Record<string, unknown>;
  reply?: ModelStep[];
  times?: number;
  [member: string]: unknown;
}

/** A script that plays the model: the first rule that matches a request answers it, and otherwise the default. */
export interface ModelScript {
  rules?: ModelRule[];
  default?: { reply: ModelStep[]; [member: string]: unknown };
  [member: string]: unknown;
}

/** Options of {@link startTestServer}. */
export interface TestServerOptions extends Omit<StartOptions, "dataDirectory"> {
  /** The script: an object, or the path of a YAML file. Default: every prompt is answered with "You said: …". */
  model?: ModelScript | string;
}

const echo: ModelScript = { default: { reply: [{ text: "You said: {{user}}" }] } };

/** A server with a scripted model. */
export class TestServer implements AsyncDisposable {
  /** The target, for `connect` and `COPILOT_GRPC_TARGET`. */
  readonly target: string;
  /** All addresses of the server, in the order of `--listen`. */
  readonly addresses: readonly string[];
  /** The URL for browsers, if `args` has `--web` or `--web-listen`; "" otherwise. */
  readonly webUrl: string;
  readonly #server: PrivateServer;
  readonly #home: string;
  readonly #modelUrl: string;

  /** @internal */
  constructor(server: PrivateServer, home: string) {
    this.target = server.target;
    this.addresses = server.output.flatMap((line) => /msg=listening address=(\S+)/.exec(line)?.[1] ?? []);
    this.webUrl = server.output.flatMap((line) => /"listening for browsers" address=(\S+)/.exec(line)?.[1] ?? [])[0] ?? "";
    this.#server = server;
    this.#home = home;
    this.#modelUrl = server.output.flatMap((line) => /script plays the model: (\S+)/.exec(line)?.[1] ?? [])[0] ?? "";
  }

  /** Connects a client. */
  connect(options: Omit<ConnectOptions, "target" | "start"> = {}): Promise<Client> {
    return connect({ ...options, target: this.target });
  }

  /** Releases a gate of the script (`wait_for`). */
  async release(gate: string): Promise<void> {
    const reply = await fetch(`${this.#modelUrl}/_offline/release?gate=${encodeURIComponent(gate)}`, {
      method: "POST",
    });
    if (!reply.ok) throw new Error(`the model did not release the gate ${JSON.stringify(gate)}: ${reply.status}`);
  }

  /** Stops the server and removes its files. */
  async close(): Promise<void> {
    await this.#server.close();
    await rm(this.#home, { recursive: true, force: true, maxRetries: 3 });
  }

  /** Same as close, for `await using`. */
  async [Symbol.asyncDispose](): Promise<void> {
    await this.close();
  }
}

/**
 * Starts a server with a scripted model and an empty home. The CLI is `cli`, `COPILOT_CLI_PATH`, or the server's
 * choice.
 */
export async function startTestServer(options: TestServerOptions = {}): Promise<TestServer> {
  const { model = echo, cli = process.env["COPILOT_CLI_PATH"], args = [], ...rest } = options;
  const home = await mkdtemp(join(tmpdir(), "copilot-grpc-home-"));
  try {
    let script = model;
    if (typeof script !== "string") {
      await writeFile(join(home, "model.yaml"), JSON.stringify(script)); // JSON is YAML
      script = join(home, "model.yaml");
    }
    const own = ["--no-login", "--home", join(home, ".copilot"), "--user-home", home, "--offline-model", script];
    return new TestServer(await startServer({ ...rest, cli, args: [...own, ...args] }), home);
  } catch (error) {
    await rm(home, { recursive: true, force: true, maxRetries: 3 });
    throw error;
  }
}
