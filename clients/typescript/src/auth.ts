import { Code, ConnectError, type Interceptor } from "@connectrpc/connect";
import { isTokenReplaced, markTokenReplaced } from "./errors.js";

/** A bearer token, or a function that returns the current one. The function is called for every call. */
export type Token = string | (() => string | Promise<string>);

/**
 * Sends a token with every call. If the server rejects a token that the function has replaced in the meantime, a unary call
 * is repeated once with the new token, and a stream is opened once more.
 */
export function bearer(token: Token): Interceptor {
  const current = async () => (typeof token === "string" ? token : await token());
  return (next) => async (request) => {
    let sent = "";
    const send = async () => {
      sent = await current();
      if (sent) request.header.set("authorization", `Bearer ${sent}`);
      return next(request);
    };
    const convert = async (thrown: unknown): Promise<ConnectError> => {
      const error = ConnectError.from(thrown);
      if (error.code === Code.Unauthenticated && (await current()) !== sent) markTokenReplaced(error);
      return error;
    };
    try {
      const response = await send();
      return response.stream ? { ...response, message: converted(response.message, convert) } : response;
    } catch (thrown) {
      const error = await convert(thrown);
      if (request.stream || !isTokenReplaced(error)) throw error;
      return send(); // the server has done nothing of a call that it rejects
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
