import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";

/** Options of {@link startServer}. */
export interface StartOptions {
  /** Path of `copilot-grpc`. Default: `COPILOT_GRPC_BINARY`, or `copilot-grpc` on PATH. */
  binary?: string | undefined;
  /** Path of the Copilot CLI. Default: the server's choice. */
  cli?: string | undefined;
  /** Further arguments of `copilot-grpc serve`, for example `--offline-model`. */
  args?: string[] | undefined;
  /** Variables in addition to those of this process. */
  env?: Record<string, string> | undefined;
  /** Directory of the server's journals. Default: a temporary one, which is removed with the server. */
  dataDirectory?: string | undefined;
  /** Receives the server's output, line by line. */
  onOutput?: ((line: string) => void) | undefined;
  /** Limit of the start, in milliseconds. Default 30,000. */
  timeoutMs?: number | undefined;
}

/** A server that this program started. It ends with `close`, and when this process exits. */
export class PrivateServer implements AsyncDisposable {
  /** The target of its unix socket, for `connect`. */
  readonly target: string;
  /** The output of its start. */
  readonly output: readonly string[];
  readonly #process: ChildProcess;
  readonly #directory: string;
  readonly #onExit: () => void;

  /** @internal */
  constructor(target: string, output: readonly string[], child: ChildProcess, directory: string) {
    this.target = target;
    this.output = output;
    this.#process = child;
    this.#directory = directory;
    this.#onExit = () => child.kill();
    process.once("exit", this.#onExit);
  }

  /** Stops the server and removes its temporary files. */
  async close(): Promise<void> {
    process.off("exit", this.#onExit);
    await stop(this.#process);
    await rm(this.#directory, { recursive: true, force: true, maxRetries: 3 });
  }

  /** Same as close, for `await using`. */
  async [Symbol.asyncDispose](): Promise<void> {
    await this.close();
  }
}

/** Starts a server that only this program uses, on a unix socket in a temporary directory. */
export async function startServer(options: StartOptions = {}): Promise<PrivateServer> {
  const binary = options.binary ?? (process.env["COPILOT_GRPC_BINARY"] || "copilot-grpc");
  const directory = await mkdtemp(join(tmpdir(), "copilot-grpc-")); // mode 0700
  const target = `unix:${join(directory, "s.sock")}`;
  const args = [
    "serve",
    ...["--listen", target],
    ...["--data-dir", options.dataDirectory ?? join(directory, "data")],
    ...(options.cli ? ["--cli", options.cli] : []),
    ...(options.args ?? []),
  ];
  const child = spawn(binary, args, { stdio: ["ignore", "pipe", "pipe"], env: { ...process.env, ...options.env } });
  try {
    const output = await listening(child, binary, options);
    return new PrivateServer(target, output, child, directory);
  } catch (error) {
    await stop(child);
    await rm(directory, { recursive: true, force: true, maxRetries: 3 });
    throw error;
  }
}

/** The line after which the server accepts calls on all of its listeners. */
const ready = /^Try:/;

function listening(child: ChildProcess, binary: string, options: StartOptions): Promise<string[]> {
  return new Promise((resolve, reject) => {
    const output: string[] = [];
    const fail = (why: string) => {
      clearTimeout(timer);
      const last = output.length > 0 ? `\n${output.slice(-10).join("\n")}` : "";
      reject(new Error(`${binary} did not start: ${why}${last}`));
    };
    const timer = setTimeout(() => fail("it did not listen in time"), options.timeoutMs ?? 30_000);
    const take = (line: string) => {
      output.push(line);
      options.onOutput?.(line);
      if (!ready.test(line)) return;
      clearTimeout(timer);
      resolve([...output]);
    };
    for (const stream of [child.stdout, child.stderr]) {
      if (stream) createInterface({ input: stream }).on("line", take);
    }
    child.once("error", (error) => fail(`${error.message}; is it on PATH?`));
    child.once("exit", (code, signal) => fail(`it exited with ${code ?? signal}`));
  });
}

/** Ends a process, and waits for its end. */
async function stop(child: ChildProcess): Promise<void> {
  if (child.pid === undefined || child.exitCode !== null || child.signalCode !== null) return;
  const exited = once(child, "exit");
  child.kill();
  await exited;
}
