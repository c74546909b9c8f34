import { connect as connectSocket } from "node:net";
import type { SecureContextOptions } from "node:tls";
import type { Interceptor, Transport } from "@connectrpc/connect";
import { createGrpcTransport } from "@connectrpc/connect-node";
import { bearer, type Token } from "../auth.js";
import { Client, type ClientOptions } from "../client.js";
import { type CopilotError, isUnreached, unavailable } from "../errors.js";
import { startServer, type StartOptions } from "./server.js";
import { SessionManager } from "./sessions.js";
import { serverStatus } from "./status.js";
import { checkSocketOwner, defaultSocket, parseTarget, type Target, targetOption } from "./target.js";

/**
 * TLS settings. `ca` are the accepted authorities (default: those of Node.js); `cert` and `key` authenticate the
 * client.
 */
export interface TlsOptions extends Pick<SecureContextOptions, "ca" | "cert" | "key" | "passphrase" | "pfx"> {
  /** Name in the server's certificate, if it differs from the target's host. */
  servername?: string | undefined;
}

/** Options of {@link connect}. */
export interface ConnectOptions extends ClientOptions {
  /**
   * "unix:PATH", an absolute path, "HOST:PORT", "dns:///HOST:PORT", or a URL with http or https and without a path.
   * Default: `COPILOT_GRPC_TARGET`, or else the default socket of `copilot-grpc serve`.
   */
  target?: string | undefined;
  /** Bearer token. Default: `COPILOT_GRPC_TOKEN`. */
  token?: Token | undefined;
  /** TLS settings; true for the defaults, false for plain text also to other machines. */
  tls?: TlsOptions | boolean | undefined;
  /**
   * Starts a private server, which ends with the client; true for the defaults. Its sessions end with it, unless
   * `dataDirectory` is given.
   */
  start?: StartOptions | boolean | undefined;
  /** Interceptors of all calls, for example those of OpenTelemetry. */
  interceptors?: Interceptor[] | undefined;
  /** Limit of the check of the server, in milliseconds. Default 10,000. */
  timeoutMs?: number | undefined;
  signal?: AbortSignal | undefined;
}

/** A page of ListEvents has up to 3 MiB of events and their envelopes; lists of callbacks have no limit in bytes. */
const maxReceiveBytes = 16 << 20;
/** The default window of HTTP/2 (64 KiB) limits a stream of events to one window for each round trip. */
const streamWindowBytes = 1 << 20;

/**
 * Connects to a server, and checks that it answers, accepts the caller and has a supported version. Throws an
 * IncompatibleServerError for any other server.
 */
export async function connect(options: ConnectOptions = {}): Promise<Client> {
  if (!options.start) {
    const target = options.target ?? (process.env["COPILOT_GRPC_TARGET"] || `unix:${defaultSocket()}`);
    return connectTo(target, options);
  }
  const server = await startServer(options.start === true ? {} : options.start);
  try {
    return await connectTo(server.target, options, () => server.close());
  } catch (error) {
    await server.close();
    throw error;
  }
}

async function connectTo(
  text: string,
  options: ConnectOptions,
  closed: () => Promise<void> = () => Promise.resolve(),
): Promise<Client> {
  const target = parseTarget(text, typeof options.tls === "object" ? true : options.tls);
  const { transport, close } = makeTransport(target, options);
  const client = new Client(transport, options, async () => {
    close();
    await closed();
  });
  const timeoutMs = options.timeoutMs ?? 10_000;
  const timeout = AbortSignal.timeout(timeoutMs);
  try {
    if (target.kind === "unix") await checkSocketOwner(target.path);
    await client.check({ signal: options.signal ? AbortSignal.any([options.signal, timeout]) : timeout });
    return client;
  } catch (error) {
    close();
    const failed = error === timeout.reason ? unavailable(`no answer within ${timeoutMs} ms`) : error;
    throw isUnreached(failed) ? withRemedy(failed.rawMessage.trim(), text, target) : failed;
  }
}

/** Errors of addresses at which no server listens. */
const notListening = /\b(ECONNREFUSED|ENOENT|ENOTFOUND|EAI_AGAIN|EHOSTUNREACH|ENETUNREACH|ETIMEDOUT)\b|^no answer/;

/** The error of a failed connection. `why` is its reason. */
function withRemedy(why: string, text: string, target: Target): CopilotError {
  const otherTarget = `name another one with ${targetOption}`;
  if (notListening.test(why))
    return unavailable(`no server at ${text} (${why}): start it with \`copilot-grpc serve\`, or ${otherTarget}`);
  let remedy = otherTarget;
  if (target.kind === "tcp") {
    remedy = target.tls
      ? "see the option tls of connect for certificates, and set it to false for a server without TLS"
      : "set the option tls of connect for a server with TLS";
  }
  return unavailable(`cannot connect to ${text} (${why}): ${remedy}`);
}

function makeTransport(target: Target, options: ConnectOptions): { transport: Transport; close: () => void } {
  const tls = typeof options.tls === "object" ? options.tls : {};
  const settings = { initialWindowSize: streamWindowBytes };
  const [baseUrl, sessionOptions] =
    target.kind === "unix"
      ? // The host is only the name in :authority.
        ["http://localhost", { settings, createConnection: () => connectSocket(target.path) }]
      : [
          `${target.tls ? "https" : "http"}://${target.host}:${target.port}`,
          target.tls ? { settings, ...tls } : { settings },
        ];
  const sessionManager = new SessionManager(
    baseUrl,
    { pingIntervalMs: 30_000, pingTimeoutMs: 20_000 },
    sessionOptions,
  );
  const token = options.token ?? process.env["COPILOT_GRPC_TOKEN"];
  const transport = createGrpcTransport({
    baseUrl,
    sessionManager,
    readMaxBytes: maxReceiveBytes,
    interceptors: [...(token ? [bearer(token)] : []), ...(options.interceptors ?? []), serverStatus],
  });
  return { transport, close: () => sessionManager.abort() };
}
