// Measures the console on a real server with the CLI of cli.ts, and prints the table of docs/performance/web.md.
import { chmod } from "node:fs/promises";
import { loadavg } from "node:os";
import { join } from "node:path";
import type { Browser, CDPSession, Page } from "playwright-core";
import { logIn } from "../e2e/login.js";
import { launch, openPage, TestServer } from "../e2e/server.js";
import { collect, cpuOf, heapOf, lagsOf, longestFrame, timeOfInput, timeToOpen } from "./page.js";

const historyEvents = 50_000;
const fleetSessions = 2_000;
const cli = join(import.meta.dirname, "cli.js");
const rows: [what: string, figure: string, cpu: string, target: string][] = [];

function row(what: string, figure: string, cpu = "", target = ""): void {
  rows.push([what, figure, cpu, target]);
  console.error(`${what}: ${figure} ${cpu && `(CPU ${cpu})`}`);
}

const ms = (value: number): string => `${value < 10 ? value.toFixed(1) : Math.round(value)} ms`;
const mb = (value: number): string => `${value.toFixed(1)} MB`;

function quantile(values: readonly number[], share: number): number {
  const sorted = [...values].sort((a, b) => a - b);
  return sorted[Math.min(sorted.length - 1, Math.ceil(sorted.length * share) - 1)] ?? Number.NaN;
}

async function create(server: TestServer, sessionId: string): Promise<void> {
  await server.call("SessionService/CreateSession", { sessionId });
}

/** Opens a path some times: the medians of the time until a text is there, and of the CPU time of the page. */
async function open(page: Page, url: string, text: string, rounds = 3): Promise<[time: string, cpu: string]> {
  const [times, cpus]: [number[], number[]] = [[], []];
  for (let round = 0; round < rounds; round++) {
    const browser = page.context().browser()!;
    cpus.push(await cpuOf(browser, async () => times.push(await timeToOpen(page, url, text))));
  }
  return [ms(quantile(times, 0.5)), ms(quantile(cpus, 0.5))];
}

async function debuggerOf(page: Page): Promise<CDPSession> {
  return page.context().newCDPSession(page);
}

/** The first view of an empty fleet without anything in the browser's cache. */
async function firstView(browser: Browser, server: TestServer, login: Page): Promise<void> {
  const cookies = await login.context().cookies();
  const times: number[] = [];
  const cpus: number[] = [];
  let bytes = 0;
  for (let round = 0; round < 5; round++) {
    const page = await openPage(browser, server);
    await page.context().addCookies(cookies);
    const cdp = await debuggerOf(page);
    await cdp.send("Network.enable");
    bytes = 0;
    cdp.on("Network.loadingFinished", ({ encodedDataLength }) => (bytes += encodedDataLength));
    await collect(page);
    await page.goto(`${server.base}/icon.svg`);
    bytes = 0;
    const opened = async () => times.push(await timeToOpen(page, `${server.base}/`, "No sessions yet"));
    cpus.push(await cpuOf(browser, opened));
    await page.context().close();
  }
  row("first view, transferred with headers, compressed", `${(bytes / 1024).toFixed(0)} KB`, "", "≤ 300 KB");
  const [time, cpu] = [ms(quantile(times, 0.5)), ms(quantile(cpus, 0.5))];
  row("first view, from the request to the list of sessions (median of 5)", time, cpu);
}

/** Events of a turn that streams into an open session. */
async function eventToDom(browser: Browser, server: TestServer, rate: number, seconds: number): Promise<void> {
  const id = `stream-${rate}`;
  await create(server, id);
  const page = await openPage(browser, server);
  await collect(page);
  await logIn(page, server);
  await page.goto(`${server.base}/sessions/${id}`);
  await page.getByText("Nothing has been said yet").waitFor();
  const prompt = { text: `stream ${rate} ${seconds}` };
  await server.call("SessionService/SendAndWait", { sessionId: id, prompt, timeout: `${seconds + 60}s` });
  await page.getByRole("button", { name: "Send" }).waitFor();
  const lags = await lagsOf(page);
  const all = rate * seconds;
  if (lags.length < all * 0.99) throw new Error(`${lags.length} of ${all} events were seen`);
  const [p50, p99] = [quantile(lags, 0.5), quantile(lags, 0.99)];
  row(`event to DOM, ${rate} a second (${lags.length} events), p50 / p99`, `${ms(p50)} / ${ms(p99)}`);
  await page.context().close();
}

async function longSession(browser: Browser, server: TestServer): Promise<void> {
  const id = "history";
  await create(server, id);
  const prompt = { text: `history ${historyEvents}` };
  await server.call("SessionService/SendAndWait", { sessionId: id, prompt, timeout: "120s" });
  const page = await openPage(browser, server);
  await collect(page);
  await logIn(page, server);
  const cdp = await debuggerOf(page);
  const before = await heapOf(cdp);
  const n = historyEvents.toLocaleString("en");
  const session = `${server.base}/sessions/${id}`;
  const opened = await open(page, session, "That was the history.");
  row(`a session of ${n} events, time to open (median of 3)`, ...opened, "≤ 1.5 s");
  row("its JavaScript heap; that of the fleet", `${mb(await heapOf(cdp))}; ${mb(before)}`);
  const longest = await longestFrame(page, 'section[aria-label="Conversation"] *');
  row("its longest frame, scrolled from end to begin in 120 steps", ms(longest));
  row("its timeline, first events shown (median of 3)", ...(await open(page, `${session}/timeline`, "As it was at")));
  row("its timeline, all events shown (median of 3)", ...(await open(page, `${session}/timeline`, " events")));
  row("its timeline, JavaScript heap", mb(await heapOf(cdp)));
  await page.getByRole("tab", { name: "Session at this point" }).click();
  const moves: number[] = [];
  for (const share of [0.1, 0.5, 0.9, 0.3, 0.95]) {
    moves.push(await timeOfInput(page, "input[type=range]", String(Math.round(historyEvents * share))));
  }
  row("its timeline, the session at another event, drawn (longest of 5)", ms(Math.max(...moves)));
  await page.context().close();
}

async function largeFleet(browser: Browser, server: TestServer): Promise<void> {
  const ids = Array.from({ length: fleetSessions }, (_, at) => `fleet-${at}`);
  const work = ids.values();
  await Promise.all(Array.from({ length: 8 }, async () => {
    for (const id of work) await create(server, id);
  }));
  const page = await openPage(browser, server);
  await collect(page);
  await logIn(page, server);
  const shown = (fleetSessions + 3).toLocaleString("en");
  const listed = await open(page, `${server.base}/`, `${shown} sessions`);
  row(`a fleet of ${shown} sessions, time until all are listed (median of 3)`, ...listed);
  row("its JavaScript heap", mb(await heapOf(await debuggerOf(page))));
  row("its search, drawn", ms(await timeOfInput(page, "#fleet-search", "fleet-1234")));
  await page.context().close();
}

await chmod(cli, 0o755);
const [server, browser] = await Promise.all([TestServer.start({ cli }), launch()]);
try {
  const login = await openPage(browser, server);
  await logIn(login, server);
  await firstView(browser, server, login);
  await login.context().close();
  await eventToDom(browser, server, 1, 40);
  await eventToDom(browser, server, 200, 15);
  await longSession(browser, server);
  await largeFleet(browser, server);
  const lines = rows.map((cells) => `| ${cells.join(" | ")} |`);
  console.log(["| what | figure | CPU of the page | target |", "|---|---|---|---|", ...lines].join("\n"));
  console.log(`\nLoad of the machine at the end: ${loadavg().map((load) => load.toFixed(1)).join(", ")}.`);
} finally {
  await browser.close();
  await server.close();
}
