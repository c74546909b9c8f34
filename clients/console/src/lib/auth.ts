/** What the caller may do: an observer only reads. */
export type Role = "owner" | "participant" | "observer";

/** The caller as the server knows it. */
export interface Identity {
  readonly name: string;
  readonly tenant: string;
  readonly role: Role;
  /** The caller operates the whole server; absent means false. */
  readonly admin?: boolean;
  /** End of the login in RFC 3339; empty if it does not end. */
  readonly expires: string;
  readonly method: "link" | "oidc" | "token" | "certificate" | "open";
}

/** Ways to log in that the server offers. */
export type LoginMethod = "link" | "oidc" | "token";

/** The result of asking the server for the caller. */
export type Me =
  | { readonly state: "in"; readonly identity: Identity }
  | { readonly state: "out"; readonly methods: readonly LoginMethod[] };

/** A login that the server refused, with its text. */
export class LoginError extends Error {
  override readonly name: string = "LoginError";
}

type Fetch = typeof globalThis.fetch;

/** Asks who the caller is. Throws if the server does not answer. */
export async function fetchMe(fetch: Fetch = globalThis.fetch): Promise<Me> {
  const reply = await fetch("/auth/me", { headers: { Accept: "application/json" }, cache: "no-store" });
  if (reply.status === 401) {
    const { methods = [] } = (await reply.json()) as { methods?: LoginMethod[] };
    return { state: "out", methods };
  }
  if (!reply.ok) throw new Error(`the server answered with status ${reply.status}`);
  return { state: "in", identity: (await reply.json()) as Identity };
}

/** Logs in with a one-time link's token, or with a bearer token. */
export async function logIn(
  method: "link" | "token",
  token: string,
  fetch: Fetch = globalThis.fetch,
): Promise<void> {
  const reply = await post(`/auth/${method}`, { token }, fetch);
  if (!reply.ok) throw new LoginError(await reason(reply));
}

/** Ends the login on the server. Returns the issuer's page that ends the session there; empty if there is none. */
export async function logOut(fetch: Fetch = globalThis.fetch): Promise<string> {
  const reply = await post("/auth/logout", {}, fetch);
  if (!reply.ok && reply.status !== 401) throw new LoginError(await reason(reply));
  if (!reply.ok) return "";
  const { redirect = "" } = (await reply.json()) as { redirect?: string };
  return /^https?:\/\//.test(redirect) ? redirect : "";
}

function post(path: string, body: object, fetch: Fetch): Promise<Response> {
  return fetch(path, {
    method: "POST",
    headers: { "Content-Type": "application/json", Accept: "application/json" },
    body: JSON.stringify(body),
  });
}

async function reason(reply: Response): Promise<string> {
  try {
    const { message } = (await reply.json()) as { message?: string };
    if (message) return message;
  } catch {
    // The answer of a proxy need not be JSON.
  }
  return `the server answered with status ${reply.status}`;
}

/** The token in the fragment of a login link. */
export function linkToken(hash: string): string {
  return hash.startsWith("#") ? hash.slice(1) : "";
}

/** Where to go after a login: a path of this console, never another site. */
export function returnPath(search: string): string {
  const path = new URLSearchParams(search).get("return") ?? "/";
  return /^\/(?![/\\])/.test(path) && !path.startsWith("/login") ? path : "/";
}

/** Reports whether a role may send, answer and change. */
export function mayAct(identity: Identity | undefined): boolean {
  return identity !== undefined && identity.role !== "observer";
}

/** Reports whether a role may start, share, label and delete sessions. */
export function mayOwn(identity: Identity | undefined): boolean {
  return identity?.role === "owner";
}

/** What the caller may do with a session. */
export interface Rights {
  /** Send, answer and stop. */
  readonly acts: boolean;
  /** Close it. */
  readonly closes: boolean;
  /** Fork, share, label, delete and open it again. */
  readonly owns: boolean;
}

/** The rights in a session of the caller's tenant, or in one that another tenant shares with it. */
export function rightsOf(identity: Identity, shared: { readonly owner: string; readonly access: number } | undefined): Rights {
  const acts = mayAct(identity);
  if (shared?.owner) return { acts: acts && shared.access === participate, closes: false, owns: false };
  return { acts, closes: acts, owns: mayOwn(identity) };
}

/** ShareAccess of tenants that take part. */
const participate = 2;
