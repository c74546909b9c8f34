// Sums, bars and lines of the usage page.
import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { barsOf, linesOf, loadUsage, maxBars, sumOf, type UsageRow, valueOf } from "../src/lib/usage.js";

const now = Date.parse("2026-11-22T23:30:00Z");

function row(fields: Partial<UsageRow>): UsageRow {
  const zero = { turns: 0n, requests: 0n, inputTokens: 0n, outputTokens: 0n, cacheReadTokens: 0n, cacheWriteTokens: 0n };
  return { day: "", modelId: "", sessionId: "", owner: "", cost: 0, ...zero, ...fields } as UsageRow;
}

describe("usage", () => {
  test("sums", () => {
    const sums = sumOf([
      row({ turns: 1n, requests: 2n, inputTokens: 10n, outputTokens: 3n, cacheReadTokens: 4n, cost: 0.5 }),
      row({ turns: 2n, apiDuration: { seconds: 1n, nanos: 5e8 } as NonNullable<UsageRow["apiDuration"]> }),
    ]);
    assert.deepEqual(sums, { turns: 3, requests: 2, inputTokens: 10, outputTokens: 3, cachedTokens: 4, cost: 0.5, apiMs: 1500 });
    assert.deepEqual([valueOf(sums, "tokens"), valueOf(sums, "cost"), valueOf(sums, "turns")], [13, 0.5, 3]);
  });

  test("a bar for each day, also without use", () => {
    const rows = [row({ day: "2026-11-20", turns: 1n }), row({ day: "2026-11-22", turns: 2n })];
    const bars = barsOf(rows, 3, now);
    assert.deepEqual(bars.map(({ day, sums }) => [day, sums.turns]), [["2026-11-20", 1], ["2026-11-21", 0], ["2026-11-22", 2]]);
  });

  test("all days begin with the first, within a limit", () => {
    const since = (day: string) => barsOf([row({ day })], 0, now).map((bar) => bar.day);
    assert.deepEqual(since("2026-11-10").at(0), "2026-11-10");
    assert.equal(since("2026-11-10").length, 13);
    assert.equal(since("2026-11-22").length, 7);
    assert.equal(since("2020-01-01").length, maxBars);
    assert.equal(barsOf([], 0, now).length, 7);
  });

  test("lines of a group, the largest first", () => {
    const rows = [
      row({ modelId: "small", inputTokens: 5n }),
      row({ modelId: "large", inputTokens: 1n, outputTokens: 90n }),
      row({ modelId: "small", outputTokens: 2n }),
      row({ modelId: "", inputTokens: 7n }),
    ];
    assert.deepEqual(linesOf(rows, "model").map(({ key, sums }) => [key, valueOf(sums, "tokens")]), [["large", 91], ["", 7], ["small", 7]]);
  });

  test("the server is asked for a period, by day and by the group", async () => {
    const asked: unknown[] = [];
    const getUsage = async (request: unknown) => {
      asked.push(request);
      return { rows: [row({ day: new Date().toISOString().slice(0, 10), owner: "acme", turns: 4n })] };
    };
    const client = { rpc: { sessions: { getUsage } } } as unknown as Parameters<typeof loadUsage>[0];
    const found = await loadUsage(client, 7, "owner", new AbortController().signal);
    assert.deepEqual([found.sums.turns, found.bars.length, found.lines[0]?.key], [4, 7, "acme"]);
    assert.deepEqual(asked.map((request) => (request as { groupBy: number[] }).groupBy), [[1], [4]]);
    assert.ok(asked.every((request) => (request as { startTime?: unknown }).startTime));
    await loadUsage(client, 0, "owner", new AbortController().signal);
    assert.ok(asked.slice(2).every((request) => !(request as { startTime?: unknown }).startTime));
  });
});
