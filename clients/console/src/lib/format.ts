import type { Session as SessionMessage } from "@copilot-grpc/client/gen/copilot/bridge/v1/session_pb";

type Timestamp = NonNullable<SessionMessage["createTime"]>;

/** Milliseconds since 1970; 0 without a time. */
export function millis(time: Timestamp | undefined): number {
  return time ? Number(time.seconds) * 1000 + Math.floor(time.nanos / 1e6) : 0;
}

/** The time that has passed, in one unit: "now", "12s", "5m", "3h", "4d", "6w", "2y". */
export function age(from: number, now: number): string {
  if (from <= 0) return "";
  const seconds = Math.max(0, Math.floor((now - from) / 1000));
  if (seconds < 5) return "now";
  if (seconds < 60) return `${seconds}s`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)}m`;
  if (seconds < 86400) return `${Math.floor(seconds / 3600)}h`;
  if (seconds < 14 * 86400) return `${Math.floor(seconds / 86400)}d`;
  if (seconds < 365 * 86400) return `${Math.floor(seconds / (7 * 86400))}w`;
  return `${Math.floor(seconds / (365 * 86400))}y`;
}

/** A duration: "340 ms", "2.4 s", "1 min 12 s", "2 h 5 min". */
export function duration(ms: number): string {
  if (ms < 1000) return `${Math.max(0, Math.round(ms))} ms`;
  if (ms < 9950) return `${(ms / 1000).toFixed(1)} s`;
  const seconds = Math.round(ms / 1000);
  if (seconds < 60) return `${seconds} s`;
  const minutes = Math.floor(seconds / 60);
  if (minutes < 60) return seconds % 60 ? `${minutes} min ${seconds % 60} s` : `${minutes} min`;
  return minutes % 60 ? `${Math.floor(minutes / 60)} h ${minutes % 60} min` : `${Math.floor(minutes / 60)} h`;
}

/** The rest of a time limit: "1:05", "2:00:00"; "0:00" when it is over. */
export function countdown(ms: number): string {
  const seconds = Math.max(0, Math.ceil(ms / 1000));
  const [h, m, s] = [Math.floor(seconds / 3600), Math.floor(seconds / 60) % 60, seconds % 60];
  const two = (n: number) => String(n).padStart(2, "0");
  return h > 0 ? `${h}:${two(m)}:${two(s)}` : `${m}:${two(s)}`;
}

/** A count in at most four characters: "950", "1.2k", "34k", "5.6M". */
export function count(n: number | bigint): string {
  const value = Number(n);
  if (value < 1000) return String(Math.round(value));
  for (const [limit, unit] of [
    [1e6, "k"],
    [1e9, "M"],
    [1e12, "G"],
  ] as const) {
    if (value >= limit * 0.9995) continue;
    const scaled = value / (limit / 1000);
    return `${scaled < 9.95 ? scaled.toFixed(1) : Math.round(scaled)}${unit}`;
  }
  return value.toExponential(1);
}

/** A size: "512 B", "1.5 KiB", "12 MiB". */
export function bytes(n: number | bigint): string {
  let value = Number(n);
  if (value < 1024) return `${value} B`;
  for (const unit of ["KiB", "MiB", "GiB"]) {
    value /= 1024;
    if (value < 1024 || unit === "GiB") return `${value < 9.95 ? value.toFixed(1) : Math.round(value)} ${unit}`;
  }
  return "";
}

/** A cost in the provider's unit, without false precision. */
export function cost(n: number): string {
  if (n === 0) return "0";
  return n < 0.01 ? "<0.01" : n < 10 ? n.toFixed(2) : n < 1000 ? n.toFixed(1) : count(n);
}

/** "3 sessions", "1 session". */
export function plural(n: number, noun: string, nouns = `${noun}s`): string {
  return `${n.toLocaleString("en")} ${n === 1 ? noun : nouns}`;
}

/** The last parts of a path, for narrow columns. */
export function shortPath(path: string, parts = 2): string {
  const segments = path.split("/").filter(Boolean);
  return segments.length <= parts ? path : `…/${segments.slice(-parts).join("/")}`;
}
