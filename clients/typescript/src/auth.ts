import { Code, ConnectError, type Interceptor } from "@connectrpc/connect";

/** A bearer token, or a function that returns the current one. The function is called for every call. */
export type Token = string | (() => string | Promise<string>);

/**
 * Sends a token with every call. If the server rejects a token that the function has replaced in the meantime, the call
 * counts as interrupted: idempotent calls and streams are repeated with the new token.
 */
export function bearer(token: Token): Interceptor {
  const current = async () => (typeof token === "string" ? token : await token());
  return (next) => async (request) => {
    const sent = await current();
    if (sent) request.header.set("authorization", `Bearer ${sent}`);
    const convert = async (thrown: unknown): Promise<unknown> => {
      const error = ConnectError.from(thrown);
      if (error.code !== Code.Unauthenticated || (await current()) === sent) return thrown;
      return new ConnectError("the token has expired and was replaced", Code.Unavailable, undefined, undefined, thrown);
    };
    try {
      const response = await next(request);
      return response.stream ? { ...response, message: converted(response.message, convert) } : response;
    } catch (error) {
      throw await convert(error);
    }
  };
}

/** The messages of a stream, with a converted error. */
async function* converted<T>(
  messages: AsyncIterable<T>,
  convert: (error: unknown) => Promise<unknown>,
): AsyncIterable<T> {
  try {
    yield* messages;
  } catch (error) {
    throw await convert(error);
  }
}
