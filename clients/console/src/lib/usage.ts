import type { Client } from "@copilot-grpc/client";

type Usage = Awaited<ReturnType<Client["rpc"]["sessions"]["getUsage"]>>;

/** A row of the server: what one group has used. */
export type UsageRow = Usage["rows"][number];

/** UsageGroup of the API. */
export const groups = { day: 1, model: 2, session: 3, owner: 4 } as const;

/** What the rows of the table are. */
export type Dimension = "model" | "session" | "owner";

/** A figure of the chart. */
export type Metric = "tokens" | "cost" | "turns";

/** Sums of rows. */
export interface Sums {
  readonly turns: number;
  readonly requests: number;
  readonly inputTokens: number;
  readonly outputTokens: number;
  readonly cachedTokens: number;
  readonly cost: number;
  readonly apiMs: number;
}

const none: Sums = { turns: 0, requests: 0, inputTokens: 0, outputTokens: 0, cachedTokens: 0, cost: 0, apiMs: 0 };

/** The sums of all rows. */
export function sumOf(rows: readonly UsageRow[]): Sums {
  return rows.reduce<Sums>(
    (sum, row) => ({
      turns: sum.turns + Number(row.turns),
      requests: sum.requests + Number(row.requests),
      inputTokens: sum.inputTokens + Number(row.inputTokens),
      outputTokens: sum.outputTokens + Number(row.outputTokens),
      cachedTokens: sum.cachedTokens + Number(row.cacheReadTokens),
      cost: sum.cost + row.cost,
      apiMs: sum.apiMs + Number(row.apiDuration?.seconds ?? 0n) * 1000 + (row.apiDuration?.nanos ?? 0) / 1e6,
    }),
    none,
  );
}

/** The value of a figure. */
export function valueOf(sums: Sums, metric: Metric): number {
  return metric === "tokens" ? sums.inputTokens + sums.outputTokens : sums[metric];
}

const dayMs = 86_400_000;

/** A day as the server names it, "2026-11-22", in UTC. */
export function dayName(time: number): string {
  return new Date(time).toISOString().slice(0, 10);
}

/** A bar of the chart. */
export interface Bar {
  readonly day: string;
  readonly sums: Sums;
}

/** At most this many bars; older days are left out of the chart. */
export const maxBars = 90;

/**
 * One bar for each day up to today, also for days without use: the last `days`, or all since the first row if `days`
 * is 0.
 */
export function barsOf(rows: readonly UsageRow[], days: number, now: number): Bar[] {
  const byDay = new Map<string, UsageRow[]>();
  for (const row of rows) byDay.set(row.day, [...(byDay.get(row.day) ?? []), row]);
  const first = [...byDay.keys()].filter(Boolean).sort()[0];
  const since = first ? Math.round((Date.parse(dayName(now)) - Date.parse(first)) / dayMs) + 1 : 1;
  const length = Math.min(maxBars, days || Math.max(since, 7));
  return Array.from({ length }, (_, i) => {
    const day = dayName(now - (length - 1 - i) * dayMs);
    return { day, sums: sumOf(byDay.get(day) ?? []) };
  });
}

/** A line of the table. */
export interface UsageLine {
  /** The model, session or tenant; empty if the server does not know it. */
  readonly key: string;
  readonly sums: Sums;
}

/** The lines of a table, the largest use first. */
export function linesOf(rows: readonly UsageRow[], dimension: Dimension): UsageLine[] {
  const field = { model: "modelId", session: "sessionId", owner: "owner" } as const;
  const byKey = new Map<string, UsageRow[]>();
  for (const row of rows) {
    const key = row[field[dimension]];
    byKey.set(key, [...(byKey.get(key) ?? []), row]);
  }
  const lines = [...byKey].map(([key, of]) => ({ key, sums: sumOf(of) }));
  return lines.sort((a, b) => valueOf(b.sums, "tokens") - valueOf(a.sums, "tokens") || a.key.localeCompare(b.key));
}

/** The use of the last days, by day and by a dimension; 0 days stand for all. */
export async function loadUsage(
  client: Client,
  days: number,
  dimension: Dimension,
  signal: AbortSignal,
): Promise<{ readonly bars: Bar[]; readonly lines: UsageLine[]; readonly sums: Sums }> {
  const now = Date.now();
  const start = new Date(now - Math.max(0, days - 1) * dayMs);
  const startTime = days > 0 ? { seconds: BigInt(Math.floor(start.getTime() / 1000)), nanos: 0 } : undefined;
  const period = startTime ? { startTime } : {};
  const [byDay, byGroup] = await Promise.all([
    client.rpc.sessions.getUsage({ ...period, groupBy: [groups.day] }, { signal }),
    client.rpc.sessions.getUsage({ ...period, groupBy: [groups[dimension]] }, { signal }),
  ]);
  return { bars: barsOf(byDay.rows, days, now), lines: linesOf(byGroup.rows, dimension), sums: sumOf(byDay.rows) };
}
