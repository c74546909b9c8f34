import { lstat } from "node:fs/promises";
import { homedir } from "node:os";
import { isAbsolute, join } from "node:path";
import { unavailable } from "../errors.js";
import { errorText } from "../logger.js";

/** Where a server listens. */
export type Target =
  | { readonly kind: "unix"; readonly path: string }
  | { readonly kind: "tcp"; readonly host: string; readonly port: number; readonly tls: boolean };

/** Where a program says its target, for errors. */
export const targetOption = "the option target of connect or COPILOT_GRPC_TARGET";
const forms = "host:port, unix:/path, dns:///host:port or https://host:port";

/**
 * Parses "unix:PATH", an absolute path, "HOST:PORT", "dns:///HOST:PORT", or a URL with http or https. Loopback hosts
 * use plain text, all other hosts TLS, unless a URL or `tls` says otherwise. Throws a TypeError for any other text.
 */
export function parseTarget(text: string, tls: boolean | undefined): Target {
  const path = text.startsWith("unix:") ? text.slice("unix:".length).replace(/^\/\/(?=\/)/, "") : text;
  if (path !== "" && (isAbsolute(path) || text.startsWith("unix:"))) return { kind: "unix", path };
  const url = parseUrl(/^https?:\/\//i.test(text) ? text : `grpc://${text.replace(/^dns:(\/\/\/)?/, "")}`);
  if (!url) throw new TypeError(`${JSON.stringify(text)} is no target: set ${targetOption} to ${forms}`);
  const secure = url.protocol === "https:" || (url.protocol === "grpc:" && !isLoopback(url.hostname));
  const port = Number(url.port || (url.protocol === "https:" ? 443 : 80));
  return { kind: "tcp", host: url.hostname, port, tls: tls ?? secure };
}

/** A URL of a host and a port. Without a port, http and https have their own. */
function parseUrl(text: string): URL | undefined {
  const url = URL.canParse(text) ? new URL(text) : undefined;
  if (!url?.hostname || (!url.port && url.protocol === "grpc:")) return undefined;
  const { username, password, pathname, search, hash } = url;
  return /^\/?$/.test(username + password + pathname + search + hash) ? url : undefined;
}

function isLoopback(host: string): boolean {
  return host === "localhost" || host === "[::1]" || /^127(\.\d+){3}$/.test(host);
}

/** The default socket of `copilot-grpc serve`. */
export function defaultSocket(): string {
  const runtime = process.env["XDG_RUNTIME_DIR"] ?? "";
  if (isAbsolute(runtime)) return join(runtime, "copilot-grpc.sock");
  return join(cacheDirectory(), "copilot-grpc", "copilot-grpc.sock");
}

function cacheDirectory(): string {
  if (process.platform === "darwin") return join(homedir(), "Library", "Caches");
  if (process.platform === "win32") return process.env["LocalAppData"] ?? join(homedir(), "AppData", "Local");
  return process.env["XDG_CACHE_HOME"] || join(homedir(), ".cache");
}

/**
 * Throws if a socket is missing, or belongs to another user: in a directory such as /tmp any user can create a socket
 * first, and would receive tokens and prompts. Sockets of root are accepted, and root accepts every socket.
 */
export async function checkSocketOwner(path: string): Promise<void> {
  const own = process.geteuid?.();
  if (own === undefined) return;
  const { uid } = await lstat(path).catch((error: unknown) => {
    throw unavailable(errorText(error));
  });
  if (own !== 0 && uid !== own && uid !== 0) {
    const why = `the socket ${JSON.stringify(path)} belongs to user ${uid}, and this program runs as user ${own}`;
    throw new Error(`${why}: name another one with ${targetOption}`);
  }
}
