import type { Interceptor } from "@connectrpc/connect";
import { findTrailerError } from "@connectrpc/connect/protocol-grpc";

/**
 * Ends a stream with the server's status. A server that ends a stream before the client does resets it after the
 * trailers, and Node.js then may report "premature close" instead of the end.
 */
export const serverStatus: Interceptor = (next) => async (request) => {
  const response = await next(request);
  return response.stream ? { ...response, message: withStatus(response.message, response.trailer) } : response;
};

/** The messages, with the status of the trailers as their end. A generator would cost several promises a message. */
function withStatus<T>(messages: AsyncIterable<T>, trailer: Headers): AsyncIterable<T> {
  const end = (error: unknown): IteratorResult<T> => {
    const status = findTrailerError(trailer);
    if (status) throw status;
    if (!trailer.has("grpc-status")) throw error; // the connection broke, or the program aborted the call
    return { done: true, value: undefined };
  };
  return {
    [Symbol.asyncIterator]() {
      const inner = messages[Symbol.asyncIterator]();
      return {
        next: () => inner.next().then(undefined, end),
        return: (value: unknown) => inner.return?.(value) ?? Promise.resolve({ done: true, value: undefined }),
        throw: (reason: unknown) => inner.throw?.(reason) ?? Promise.reject(reason as Error),
      };
    },
  };
}
