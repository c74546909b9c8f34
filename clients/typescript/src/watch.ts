import { abortReason, linkedController } from "./async.js";
import { Backoff, type ReconnectPolicy } from "./backoff.js";
import { isBroken, toCopilotError, unavailable } from "./errors.js";
import { readCall, silenceMs } from "./events.js";
import type { Logger } from "./logger.js";

/** What readers of streams of all sessions need of their client. */
export interface WatchEnvironment {
  readonly reconnect: ReconnectPolicy;
  readonly logger: Logger;
  /** Aborts when the client is closed: the iteration then ends. */
  readonly over: AbortSignal;
}

/** Yields the messages of one stream after another. `open` starts each. */
export async function* watchStreams<T>(
  env: WatchEnvironment,
  open: (signal: AbortSignal) => AsyncIterable<T>,
  signal: AbortSignal | undefined,
): AsyncGenerator<T> {
  const { controller, release } = linkedController(signal, env.over);
  const silence = silenceMs(env.reconnect, { heartbeatInterval: { seconds: 30n } });
  const backoff = new Backoff(env.reconnect);
  try {
    for (;;) {
      let error: Error;
      try {
        for await (const message of readCall(open, silence, controller.signal)) {
          backoff.reset();
          yield message;
        }
        error = unavailable("the server ended the stream");
      } catch (thrown) {
        error = toCopilotError(thrown);
      }
      if (!controller.signal.aborted && isBroken(error) && (await backoff.wait(error, controller.signal))) {
        env.logger.warn("stream of all sessions broken", { error });
        continue;
      }
      if (env.over.aborted) return;
      throw signal?.aborted ? abortReason(signal) : error;
    }
  } finally {
    release();
  }
}
