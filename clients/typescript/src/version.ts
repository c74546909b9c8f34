import { IncompatibleServerError } from "./errors.js";

/** The window of servers that this library works with: from the first version, below the second one. */
export const supportedServers = { from: "0.1.0", below: "1.0.0" } as const;

/**
 * Throws an IncompatibleServerError if a server's version is outside of the window. Development builds have a commit
 * instead of a version, and pass.
 */
export function checkServerVersion(version: string): void {
  const found = parse(version);
  if (!found) return;
  const [from, below] = [parse(supportedServers.from) as number[], parse(supportedServers.below) as number[]];
  if (compare(found, from) < 0) {
    throw new IncompatibleServerError(
      `the server has version ${version}; this library needs at least ${supportedServers.from}: update the server`,
    );
  }
  if (compare(found, below) >= 0) {
    throw new IncompatibleServerError(
      `the server has version ${version}; this library works below ${supportedServers.below}: update the library`,
    );
  }
}

function parse(version: string): number[] | undefined {
  const parts = /^v?(\d+)\.(\d+)\.(\d+)/.exec(version);
  return parts ? parts.slice(1).map(Number) : undefined;
}

function compare(a: number[], b: number[]): number {
  for (const [at, part] of a.entries()) {
    if (part !== b[at]) return part - (b[at] ?? 0);
  }
  return 0;
}
