/**
 * A logger: `console`, pino and similar. Messages are constant, details are attributes. No prompts, results or
 * secrets.
 */
export interface Logger {
  /** Logs what helps to find a fault of the library or of its use. */
  debug(message: string, attributes?: Record<string, unknown>): void;
  /** Logs what the library recovers from, such as a broken connection. */
  warn(message: string, attributes?: Record<string, unknown>): void;
  /** Logs what a program has to mend, such as a handler that throws. */
  error(message: string, attributes?: Record<string, unknown>): void;
}

const ignore = (): void => undefined;

/** The default: what a program should know of, on the console. */
export const warnings: Logger = {
  debug: ignore,
  warn: (message, attributes) => console.warn(`copilot-grpc: warning: ${message}`, attributes ?? {}),
  error: (message, attributes) => console.error(`copilot-grpc: error: ${message}`, attributes ?? {}),
};

/** The text of an error, for a log. */
export function errorText(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}
