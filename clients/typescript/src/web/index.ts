/**
 * The library for browsers: everything of `@copilot-grpc/client`, and `connect` over gRPC-Web.
 *
 * @packageDocumentation
 */
import type { Interceptor } from "@connectrpc/connect";
import { createGrpcWebTransport } from "@connectrpc/connect-web";
import { bearer, type Token } from "../auth.js";
import { Client, type ClientOptions } from "../client.js";
import { isUnreached, unavailable } from "../errors.js";
import { abortingFetch } from "./abort.js";

export * from "../index.js";

const isNode = typeof (globalThis as { process?: { versions?: { node?: string } } }).process?.versions?.node === "string";

/** Options of {@link connect}. */
export interface ConnectOptions extends Omit<ClientOptions, "participation"> {
  /** URL of a server's listener for browsers (`serve --web`), or of a proxy that speaks gRPC-Web. */
  baseUrl: string;
  token?: Token | undefined;
  interceptors?: Interceptor[] | undefined;
  /** Replaces the browser's fetch, for example to send cookies. */
  fetch?: typeof globalThis.fetch | undefined;
  signal?: AbortSignal | undefined;
}

/**
 * Connects to a server, and checks that it answers, accepts the caller and has a supported version. Browsers have no
 * bidirectional streams, so that sessions use Subscribe and Resolve: tools and handlers belong to the session.
 */
export async function connect(options: ConnectOptions): Promise<Client> {
  if (/^(?!https?:)[a-z][a-z0-9+.-]*:/i.test(options.baseUrl))
    throw new TypeError(`${JSON.stringify(options.baseUrl)} is no baseUrl: write https://host:port`);
  const fetch = options.fetch ?? (isNode ? abortingFetch(globalThis.fetch) : undefined);
  const transport = createGrpcWebTransport({
    baseUrl: options.baseUrl,
    interceptors: [...(options.token ? [bearer(options.token)] : []), ...(options.interceptors ?? [])],
    ...(fetch ? { fetch } : {}),
  });
  const client = new Client(transport, { ...options, participation: "subscribe" });
  try {
    await client.check(options.signal ? { signal: options.signal } : {});
  } catch (error) {
    if (!isUnreached(error)) throw error;
    const remedy =
      "start it with `copilot-grpc serve --web`, list the origins of other servers' pages in --web-origins, or name " +
      "another one with the option baseUrl of connect";
    throw unavailable(`no server at ${options.baseUrl} (${error.rawMessage}): ${remedy}`);
  }
  return client;
}
