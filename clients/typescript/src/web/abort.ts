import { abortable, abortReason } from "../async.js";

/**
 * A fetch whose calls end when their signal aborts. The fetch of Node.js forgets the signal when garbage is collected
 * (nodejs/undici#4984): a stream that waits for its next message would then never end. Browsers need no help.
 */
export function abortingFetch(fetch: typeof globalThis.fetch): typeof globalThis.fetch {
  return async (input, init) => {
    const signal = init?.signal ?? undefined;
    const reply = fetch(input, init);
    if (!signal) return reply;
    try {
      const { body, headers, status, statusText } = await abortable(reply, signal);
      return new Response(body && abortableBody(body, signal), { headers, status, statusText });
    } catch (error) {
      reply.then((late) => late.body?.cancel()).catch(() => undefined); // gives the connection back
      throw error;
    }
  };
}

/** A body that fails when the signal aborts, and then ends the request. */
function abortableBody(body: ReadableStream<Uint8Array>, signal: AbortSignal): ReadableStream<Uint8Array> {
  const reader = body.getReader();
  let onAbort: () => void = () => undefined;
  const over = () => signal.removeEventListener("abort", onAbort);
  return new ReadableStream<Uint8Array>(
    {
      start(controller) {
        onAbort = () => {
          controller.error(abortReason(signal));
          reader.cancel(signal.reason).catch(() => undefined);
        };
        if (signal.aborted) onAbort();
        else signal.addEventListener("abort", onAbort, { once: true });
      },
      async pull(controller) {
        try {
          const { done, value } = await reader.read();
          if (signal.aborted) return;
          if (!done) return controller.enqueue(value);
          controller.close();
        } catch (error) {
          if (!signal.aborted) controller.error(error);
        }
        over();
      },
      cancel(reason) {
        over();
        return reader.cancel(reason);
      },
    },
    { highWaterMark: 0 },
  );
}
