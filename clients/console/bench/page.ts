// Measurements within a page of the console.
import type { Browser, CDPSession, Page } from "playwright-core";

/** What the script in the page collects. */
interface Collected {
  /** Milliseconds from the write of an event to its place in the DOM, by the event's number. */
  readonly lags: Record<string, number>;
  /** Time since the page began to load at which a text was first seen. */
  readonly seen: Record<string, number>;
}

type BenchWindow = Window & { bench: Collected & { watch: string } };

/** Collects the lags of events, and the time at which the watched text appears. */
export async function collect(page: Page): Promise<void> {
  await page.addInitScript(() => {
    const bench = { lags: {} as Record<string, number>, seen: {} as Record<string, number>, watch: "" };
    (window as unknown as BenchWindow).bench = bench;
    bench.watch = sessionStorage.getItem("bench") ?? "";
    const look = () => {
      const now = performance.timeOrigin + performance.now();
      if (bench.watch && !(bench.watch in bench.seen) && document.body?.innerText.includes(bench.watch)) {
        bench.seen[bench.watch] = performance.now();
      }
      for (const article of [...document.querySelectorAll('article[aria-label="Agent"]')].slice(-3)) {
        for (const [, micros, number] of (article.textContent ?? "").matchAll(/t(\d+)n(\d+)e/g)) {
          bench.lags[number!] ??= now - Number(micros) / 1000;
        }
      }
    };
    new MutationObserver(look).observe(document, { subtree: true, childList: true, characterData: true });
  });
}

/** Milliseconds from the begin of the load of a path until a text is there. */
export async function timeToOpen(page: Page, url: string, text: string): Promise<number> {
  await page.evaluate((watch) => sessionStorage.setItem("bench", watch), text);
  await page.goto(url, { waitUntil: "commit" });
  const seenAt = (watch: string) => (window as unknown as BenchWindow).bench.seen[watch];
  const seen = await page.waitForFunction(seenAt, text, { timeout: 60_000 });
  await page.evaluate(() => sessionStorage.removeItem("bench"));
  return (await seen.jsonValue()) as number;
}

export async function lagsOf(page: Page): Promise<number[]> {
  return Object.values(await page.evaluate(() => (window as unknown as BenchWindow).bench.lags));
}

/** Milliseconds of CPU time that the processes of the browser's pages take while a function runs. */
export async function cpuOf(browser: Browser, run: () => Promise<unknown>): Promise<number> {
  const cdp = await browser.newBrowserCDPSession();
  const times = async () => {
    const { processInfo } = await cdp.send("SystemInfo.getProcessInfo");
    return new Map(processInfo.filter(({ type }) => type === "renderer").map(({ id, cpuTime }) => [id, cpuTime]));
  };
  const before = await times();
  await run();
  let sum = 0;
  for (const [id, time] of await times()) sum += time - (before.get(id) ?? 0);
  await cdp.detach();
  return sum * 1000;
}

/** Megabytes of the page's JavaScript heap, after a garbage collection. */
export async function heapOf(cdp: CDPSession): Promise<number> {
  await cdp.send("HeapProfiler.collectGarbage");
  await cdp.send("Performance.enable");
  const { metrics } = await cdp.send("Performance.getMetrics");
  return (metrics.find(({ name }) => name === "JSHeapUsedSize")?.value ?? 0) / 1e6;
}

/** Milliseconds from an input into a field until the second frame after it: the page has then been drawn. */
export async function timeOfInput(page: Page, selector: string, value: string): Promise<number> {
  return page.evaluate(
    async ([where, text]) => {
      const field = document.querySelector<HTMLInputElement>(where!)!;
      const begin = performance.now();
      field.value = text!;
      field.dispatchEvent(new Event("input", { bubbles: true }));
      for (let frame = 0; frame < 2; frame++) await new Promise((resolve) => requestAnimationFrame(resolve));
      return performance.now() - begin;
    },
    [selector, value],
  );
}

/** The longest time between two frames while the page scrolls a list from its end to its begin, in milliseconds. */
export async function longestFrame(page: Page, selector: string): Promise<number> {
  return page.evaluate(async (where) => {
    const inner = [...document.querySelectorAll<HTMLElement>(where)].find(
      (element) => element.scrollHeight > element.clientHeight + 1 && getComputedStyle(element).overflowY !== "visible",
    )!;
    const [from, steps] = [inner.scrollTop, 120];
    let [longest, before] = [0, performance.now()];
    for (let step = 1; step <= steps; step++) {
      inner.scrollTop = from * (1 - step / steps);
      await new Promise((resolve) => requestAnimationFrame(resolve));
      const now = performance.now();
      [longest, before] = [Math.max(longest, now - before), now];
    }
    return longest;
  }, selector);
}
