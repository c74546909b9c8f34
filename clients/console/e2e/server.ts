// A server with the real CLI and the scripted model, and a browser. Both end with the tests.
import { type ChildProcess, spawn } from "node:child_process";
import { createHash } from "node:crypto";
import { once } from "node:events";
import { mkdir, mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { createInterface } from "node:readline";
import { type Browser, type BrowserContextOptions, chromium, type Page } from "playwright-core";

const root = resolve(import.meta.dirname, "../../../..");
const binary = process.env["COPILOT_GRPC_BINARY"] ?? join(root, "bin/copilot-grpc");
const script = resolve(import.meta.dirname, "../../e2e/model.yaml");

/** A free port of this machine, which the server keeps after it is killed. */
async function freePort(): Promise<number> {
  const listener = createServer().listen(0, "127.0.0.1");
  await once(listener, "listening");
  const address = listener.address();
  listener.close();
  await once(listener, "close");
  if (address === null || typeof address === "string") throw new Error("no port");
  return address.port;
}

/** How a server differs from the default one. */
export interface ServerOptions {
  /** Path of another CLI. */
  readonly cli?: string;
  /** A policy file in place of the server's token. Its file of static tokens is `tokens`, of `people`. */
  readonly policy?: string;
  /** Names of static tokens of the policy. */
  readonly people?: readonly string[];
}

/** A server with its own directories, which can be killed and started again. */
export class TestServer {
  readonly base: string;
  /** The working directory of the agents. */
  readonly work: string;
  readonly token = "a-token-of-the-tests-0123456789";
  readonly #directory: string;
  readonly #port: number;
  #child: ChildProcess | undefined;
  readonly #options: ServerOptions;
  #output: string[] = [];

  private constructor(directory: string, port: number, options: ServerOptions) {
    this.#directory = directory;
    this.#port = port;
    this.base = `http://127.0.0.1:${port}`;
    this.work = join(directory, "src/shop");
    this.#options = options;
  }

  static async start(options: ServerOptions = {}): Promise<TestServer> {
    const directory = await mkdtemp(join(tmpdir(), "console-"));
    const server = new TestServer(directory, await freePort(), options);
    await mkdir(server.work, { recursive: true });
    await server.restoreFiles();
    const rules = (await readFile(script, "utf8")).replaceAll("WORK", server.work);
    await writeFile(join(directory, "model.yaml"), rules);
    const { policy = "", people = [] } = options;
    await writeFile(join(directory, "policy.yaml"), policy, { mode: 0o600 });
    const digest = (name: string) => createHash("sha256").update(server.tokenOf(name)).digest("hex");
    await writeFile(join(directory, "tokens"), people.map((name) => `${name} ${digest(name)}\n`).join(""), { mode: 0o600 });
    await server.run();
    return server;
  }

  /** The static token of a name in the policy. */
  tokenOf(name: string): string {
    return `a-token-of-${name}-0123456789`;
  }

  /** The files that the scripted agent looks at and changes. */
  async restoreFiles(): Promise<void> {
    await writeFile(join(this.work, "main.go"), 'package main\n\nfunc main() {\n\tprintln("Helo")\n}\n');
    await writeFile(join(this.work, "README.md"), "# A demo\n");
  }

  /** Starts the program. The model's listener has a port of its own each time. */
  async run(): Promise<void> {
    const model = join(this.#directory, "model.yaml");
    const { cli, policy } = this.#options;
    const args = [
      ...["serve", "--listen", `unix:${join(this.#directory, "s.sock")}`, "--data-dir", join(this.#directory, "data")],
      ...["--web-listen", `127.0.0.1:${this.#port}`],
      ...(cli ? ["--cli", cli, "--max-sessions-per-runtime", "10000"] : ["--offline-model", model]),
      ...(policy ? ["--policy", join(this.#directory, "policy.yaml")] : []),
    ];
    // The CLI's own files stay out of the user's home.
    const cache = process.env["XDG_CACHE_HOME"] ?? join(process.env["HOME"] ?? "/", ".cache");
    const env = { ...process.env, HOME: this.#directory, XDG_CACHE_HOME: cache };
    // A policy replaces the server's token.
    Object.assign(env, { COPILOT_GRPC_TOKEN: policy ? "" : this.token });
    const child = spawn(binary, args, { stdio: ["ignore", "pipe", "pipe"], env });
    this.#child = child;
    this.#output = [];
    const exited = once(child, "exit").then(([code]) => {
      throw new Error(`the server ended with ${String(code)}:\n${this.#output.slice(-20).join("\n")}`);
    });
    const listening = new Promise<void>((ready) => {
      for (const stream of [child.stdout, child.stderr]) {
        createInterface({ input: stream }).on("line", (line) => {
          this.#output.push(line);
          if (line.startsWith("Try:")) ready();
        });
      }
    });
    await Promise.race([listening, exited]);
    exited.catch(() => undefined);
  }

  /** The one-time link that the server printed. */
  get link(): string {
    const link = this.#output.map((line) => /https?:\/\/\S+\/login#\S+/.exec(line)?.[0]).find(Boolean);
    if (!link) throw new Error(`the server printed no link:\n${this.#output.slice(0, 20).join("\n")}`);
    return link;
  }

  /** Releases a gate of the script. */
  async release(gate: string): Promise<void> {
    const model = this.#output.map((line) => /https?:\/\/127\.0\.0\.1:\d+/.exec(/plays the model/.test(line) ? line : "")?.[0]).find(Boolean);
    if (!model) throw new Error(`the server printed no address of the model:\n${this.#output.slice(0, 20).join("\n")}`);
    await fetch(`${model}/_offline/release?gate=${gate}`, { method: "POST" });
  }

  /** Calls an rpc of copilot.bridge.v1, or of another package by its full name, as a program with a token does. */
  async call(method: string, message: object, token = this.token): Promise<unknown> {
    const reply = await fetch(`${this.base}/${method.startsWith("copilot.") ? "" : "copilot.bridge.v1."}${method}`, {
      method: "POST",
      headers: { "Content-Type": "application/json", Authorization: `Bearer ${token}` },
      body: JSON.stringify(message),
    });
    const body = (await reply.json()) as unknown;
    if (!reply.ok) throw new Error(`${method}: ${JSON.stringify(body)}`);
    return body;
  }

  /** Ends the program at once, as the system does. */
  async kill(): Promise<void> {
    await this.#end("SIGKILL");
  }

  async close(): Promise<void> {
    await this.#end("SIGTERM");
    await rm(this.#directory, { recursive: true, force: true, maxRetries: 5 });
  }

  async #end(signal: NodeJS.Signals): Promise<void> {
    const child = this.#child;
    if (!child || child.exitCode !== null || child.signalCode !== null) return;
    const exited = once(child, "exit");
    child.kill(signal);
    await exited;
  }
}

/** An issuer of OpenID Connect for trials. It asks the browser for a subject. */
export class TestIssuer {
  readonly #child: ChildProcess;
  readonly url: string;

  private constructor(child: ChildProcess, url: string) {
    [this.#child, this.url] = [child, url];
  }

  static async start(): Promise<TestIssuer> {
    const child = spawn(binary, ["issuer", "--address", "127.0.0.1:0"], { stdio: ["ignore", "ignore", "pipe"] });
    for await (const line of createInterface({ input: child.stderr })) {
      const url = /^issuer: (\S+)/.exec(line)?.[1];
      if (url) return new TestIssuer(child, url);
    }
    throw new Error("the issuer printed no address");
  }

  async close(): Promise<void> {
    const exited = once(this.#child, "exit");
    this.#child.kill();
    await exited;
  }
}

export function launch(): Promise<Browser> {
  const executablePath = process.env["CHROMIUM"] ?? "/usr/bin/chromium";
  return chromium.launch({ executablePath, args: ["--no-sandbox", "--force-color-profile=srgb"] });
}

/** A page that fails the test if its code throws, or asks another server for anything. */
export async function openPage(
  browser: Browser,
  server: TestServer,
  options: BrowserContextOptions = {},
  ...origins: readonly string[]
): Promise<Page> {
  const context = await browser.newContext({ viewport: { width: 1280, height: 800 }, reducedMotion: "reduce", ...options });
  context.setDefaultTimeout(20_000);
  const page = await context.newPage();
  watch(page, server, ...origins);
  return page;
}

const problems = new WeakMap<Page, string[]>();

/** Collects what must not happen on a page, such as a request to a server other than its own and those of `origins`. */
export function watch(page: Page, server: TestServer, ...origins: readonly string[]): void {
  const found: string[] = [];
  problems.set(page, found);
  page.on("pageerror", (error) => found.push(`error: ${error.message}`));
  page.on("console", (message) => {
    // A connection that breaks is reported by the browser, and expected where a server is killed.
    if (message.type() === "error" && !/net::|Failed to load resource/.test(message.text())) found.push(message.text());
  });
  page.on("request", (request) => {
    const url = request.url();
    const known = [server.base, ...origins].some((origin) => url.startsWith(`${origin}/`));
    if (!known && !/^(data|blob|about):/.test(url)) found.push(`request: ${url}`);
  });
}

export function problemsOf(page: Page): string[] {
  return problems.get(page) ?? [];
}

/** Starts a session with a prompt in the dialog of the fleet. Returns its path. */
export async function startSession(page: Page, server: TestServer, prompt: string): Promise<string> {
  await page.goto(`${server.base}/`);
  await page.getByRole("button", { name: "New session" }).or(page.getByRole("button", { name: "Start the first one" })).first().click();
  const dialog = page.getByRole("dialog");
  await dialog.getByLabel("Prompt").fill(prompt);
  await dialog.getByLabel("Working directory").fill(server.work);
  await dialog.getByRole("button", { name: "Start", exact: true }).click();
  await page.waitForURL(/\/sessions\//);
  return new URL(page.url()).pathname;
}
