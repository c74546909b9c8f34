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

export const silentLogger: Logger = { debug: ignore, warn: ignore, error: ignore };

/** The text of an error, for a log. */
export function errorText(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}
