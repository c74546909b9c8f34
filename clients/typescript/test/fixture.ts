// What the tests on the real server share.
import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { createServer, connect as connectSocket, type Socket } from "node:net";
import { createInterface } from "node:readline";
import { resolve } from "node:path";
import { startTestServer, type TestServer, type TestServerOptions } from "@copilot-grpc/client/testing";

export const packageRoot = resolve(import.meta.dirname, "../..");
export const repositoryRoot = resolve(packageRoot, "../..");
/** The server under test: the one that `make build` made. */
export const binary = process.env["COPILOT_GRPC_BINARY"] ?? resolve(repositoryRoot, "bin/copilot-grpc");
export const exampleModel = resolve(repositoryRoot, "clients/example-model.yaml");

export function startServer(options: TestServerOptions = {}): Promise<TestServer> {
  return startTestServer({ binary, timeoutMs: 90_000, ...options });
}

/** The example's script with a gate in the place of its pause. */
export const gatedModel = {
  rules: [
    {
      when: { user: "weather" },
      reply: [{ text: "Let me look." }, { tool_call: { name: "get_weather", arguments: { city: "Paris" } } }],
    },
    {
      when: { tool_result: { name: "get_weather" } },
      reply: [{ text: "The tool says: {{tool_result}}. " }, { wait_for: "cut" }, { text: "Take a coat." }],
    },
  ],
  default: { reply: [{ text: "You said: {{user}}" }] },
};

/** A program whose output is read by line. */
export class Program {
  readonly #child: ChildProcess;
  readonly #lines: AsyncIterator<string>;

  constructor(args: string[], env: Record<string, string>) {
    this.#child = spawn(process.execPath, args, {
      cwd: packageRoot,
      env: { ...process.env, ...env },
      stdio: ["ignore", "pipe", "inherit"],
    });
    if (!this.#child.stdout) throw new Error("no output");
    this.#lines = createInterface({ input: this.#child.stdout })[Symbol.asyncIterator]();
  }

  /** The lines up to the first that contains the text. */
  async until(text: string): Promise<string[]> {
    const lines: string[] = [];
    for (let next = await this.#lines.next(); !next.done; next = await this.#lines.next()) {
      lines.push(next.value);
      if (next.value.includes(text)) return lines;
    }
    throw new Error(`the program did not print ${JSON.stringify(text)} but:\n${lines.join("\n")}`);
  }

  /** The remaining lines. Fails unless the program succeeds. */
  async rest(): Promise<string[]> {
    const lines: string[] = [];
    for (let next = await this.#lines.next(); !next.done; next = await this.#lines.next()) lines.push(next.value);
    if (this.#child.exitCode === null) await once(this.#child, "exit");
    if (this.#child.exitCode !== 0)
      throw new Error(`the program ended with ${this.#child.exitCode}:\n${lines.join("\n")}`);
    return lines;
  }

  /** Ends the program without a goodbye. */
  async kill(): Promise<void> {
    this.#child.kill("SIGKILL");
    if (this.#child.signalCode === null) await once(this.#child, "exit");
  }
}

/** A proxy that can break its connections. */
export class Proxy implements AsyncDisposable {
  readonly #sockets = new Set<Socket>();
  readonly #server;
  #port = 0;

  private constructor(target: string) {
    const [host = "", port = ""] = target.split(":");
    this.#server = createServer((client) => {
      const upstream = connectSocket(Number(port), host);
      for (const socket of [client, upstream]) {
        this.#sockets.add(socket);
        socket.on("error", () => undefined);
        socket.on("close", () => {
          this.#sockets.delete(socket);
          client.destroy();
          upstream.destroy();
        });
      }
      client.pipe(upstream).pipe(client);
    });
  }

  static async start(target: string): Promise<Proxy> {
    const proxy = new Proxy(target);
    proxy.#server.listen(0, "127.0.0.1");
    await once(proxy.#server, "listening");
    const address = proxy.#server.address();
    proxy.#port = typeof address === "object" && address ? address.port : 0;
    return proxy;
  }

  get address(): string {
    return `127.0.0.1:${this.#port}`;
  }

  /** Breaks all connections. */
  cut(): void {
    for (const socket of this.#sockets) socket.destroy();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#server.close();
    this.cut();
    await once(this.#server, "close");
  }
}
