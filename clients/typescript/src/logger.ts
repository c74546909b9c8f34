/**
 * A logger: `console`, pino and similar. Messages are constant, details are attributes. No prompts, results or
 * secrets.
 */
export interface Logger {
  debug(message: string, attributes?: Record<string, unknown>): void;
  warn(message: string, attributes?: Record<string, unknown>): void;
  error(message: string, attributes?: Record<string, unknown>): void;
}

const ignore = (): void => undefined;

export const silentLogger: Logger = { debug: ignore, warn: ignore, error: ignore };

/** The text of an error, for a log. */
export function errorText(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}
