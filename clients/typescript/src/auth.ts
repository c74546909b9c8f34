import type { Interceptor } from "@connectrpc/connect";

/** A bearer token, or a function that returns the current one. The function is called for every call. */
export type Token = string | (() => string | Promise<string>);

/** Sends a token with every call. */
export function bearer(token: Token): Interceptor {
  return (next) => async (request) => {
    const text = typeof token === "string" ? token : await token();
    if (text) request.header.set("authorization", `Bearer ${text}`);
    return next(request);
  };
}
