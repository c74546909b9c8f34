import { CopilotError, isBroken, isTokenReplaced, toCopilotError } from "./errors.js";

/** How broken streams are opened again. */
export interface ReconnectPolicy {
  /**
   * Limit of the first wait in milliseconds. Each further limit is twice as long; waits are random below the limit.
   * Default 100.
   */
  minBackoffMs: number;
  /** Limit of all waits. Default 5,000. */
  maxBackoffMs: number;
  /** Time for which to try, since the stream was last alive. 0 disables reconnection. Default 300,000. */
  giveUpAfterMs: number;
  /** Interval of heartbeats of both sides; a stream that is silent for three of them is broken. Default 20,000. */
  heartbeatMs: number;
}

export const defaultReconnect: ReconnectPolicy = {
  minBackoffMs: 100,
  maxBackoffMs: 5_000,
  giveUpAfterMs: 300_000,
  heartbeatMs: 20_000,
};

/** The waits between the attempts of one stream or call. */
export class Backoff {
  readonly #policy: ReconnectPolicy;
  #limit: number;
  #aliveAt: number;
  #tokenWasReplaced = false;

  constructor(policy: ReconnectPolicy) {
    this.#policy = policy;
    this.#limit = policy.minBackoffMs;
    this.#aliveAt = Date.now();
  }

  /** Records that the stream is alive. */
  reset(): void {
    this.#limit = this.#policy.minBackoffMs;
    this.#aliveAt = Date.now();
    this.#tokenWasReplaced = false;
  }

  /**
   * Waits before the next attempt. Returns false if there is none: the time is up, or the signal has aborted. A
   * replaced token is a reason for one attempt.
   */
  async wait(error: unknown, signal: AbortSignal): Promise<boolean> {
    if (isTokenReplaced(error)) {
      if (this.#tokenWasReplaced) return false;
      this.#tokenWasReplaced = true;
    }
    const asked = error instanceof CopilotError ? error.retryAfterMs : 0;
    const delay = asked + Math.random() * this.#limit;
    this.#limit = Math.min(2 * this.#limit, this.#policy.maxBackoffMs);
    if (Date.now() - this.#aliveAt + delay >= this.#policy.giveUpAfterMs) return false;
    return sleep(delay, signal);
  }
}

/** Waits. Returns false if the signal aborted before the end. */
export function sleep(ms: number, signal: AbortSignal): Promise<boolean> {
  return new Promise((resolve) => {
    if (signal.aborted) return resolve(false);
    const onAbort = () => {
      clearTimeout(timer);
      resolve(false);
    };
    const timer = setTimeout(() => {
      signal.removeEventListener("abort", onAbort);
      resolve(true);
    }, ms);
    signal.addEventListener("abort", onAbort, { once: true });
  });
}

/** Makes a call that may be repeated, until it succeeds or fails finally. Errors are converted. */
export async function retry<T>(policy: ReconnectPolicy, signal: AbortSignal, call: () => Promise<T>): Promise<T> {
  const backoff = new Backoff(policy);
  for (;;) {
    try {
      return await call();
    } catch (thrown) {
      const error = toCopilotError(thrown);
      if (signal.aborted || !isBroken(error) || !(await backoff.wait(error, signal))) throw error;
    }
  }
}

/**
 * The policy for unary calls: long enough to replace a runtime or a connection, short enough to report a missing
 * server.
 */
export function callPolicy(policy: ReconnectPolicy): ReconnectPolicy {
  return { ...policy, maxBackoffMs: 1_000, giveUpAfterMs: Math.min(policy.giveUpAfterMs, 3_000) };
}
