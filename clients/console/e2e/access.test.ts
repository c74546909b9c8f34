// axe finds nothing serious on any page, in light and dark, on a screen and on a phone.
import assert from "node:assert/strict";
import { createRequire } from "node:module";
import { after, before, describe, test } from "node:test";
import type { Browser, Page } from "playwright-core";
import { logIn } from "./login.js";
import { launch, openPage, startSession, TestServer } from "./server.js";

let server: TestServer;
let browser: Browser;

before(async () => {
  [server, browser] = await Promise.all([TestServer.start(), launch()]);
});

after(async () => {
  await browser?.close();
  await server?.close();
});

interface Finding {
  readonly id: string;
  readonly impact: string;
  readonly nodes: readonly { readonly html: string; readonly failureSummary: string }[];
}

/** Findings of axe that are serious or critical. */
async function seriousOf(page: Page, list = ""): Promise<string[]> {
  await page.locator("h1, h2").first().waitFor();
  // Items of a list are hidden until they are measured. More of them may come, so nothing is hidden for some frames.
  if (list) await page.locator(list).last().waitFor();
  await page.evaluate(
    () =>
      new Promise<void>((resolve) => {
        let frames = 0;
        const look = () => {
          frames = document.querySelector('[style*="visibility: hidden"]') ? 0 : frames + 1;
          if (frames === 20) resolve();
          else requestAnimationFrame(look);
        };
        look();
      }),
  );
  const violations = await page.evaluate(async () => {
    const { axe: run } = window as unknown as { axe: { run(options: object): Promise<{ violations: unknown[] }> } };
    const { violations: found } = await run.run({ resultTypes: ["violations"] });
    return found as Finding[];
  });
  return violations
    .filter(({ impact }) => impact === "serious" || impact === "critical")
    .map(({ id, nodes }) => `${id}: ${nodes.map(({ html, failureSummary }) => `${html} ${failureSummary}`).join("\n")}`);
}

describe("accessibility", () => {
  for (const colorScheme of ["light", "dark"] as const) {
    for (const width of [1280, 360]) {
      test(`every page in ${colorScheme}, ${width} px wide`, async () => {
        const page = await openPage(browser, server, { colorScheme, viewport: { width, height: 800 } });
        // The page's policy forbids foreign scripts: the debugger adds this one.
        await page.addInitScript({ path: createRequire(import.meta.url).resolve("axe-core/axe.min.js") });
        await page.goto(`${server.base}/login`);
        assert.deepEqual(await seriousOf(page), [], "login");
        await logIn(page, server);
        const session = await startSession(page, server, "list the files");
        await page.getByRole("button", { name: "Approve" }).waitFor();
        const lists = { [session]: 'section[aria-label="Conversation"] .card', "/inbox": "li .card", "/": "[role=listitem] a", [`${session}/timeline`]: "[role=option]" };
        for (const path of [session, "/inbox", "/", "/usage", "/runtimes", "/nowhere", `${session}/timeline`]) {
          await page.goto(`${server.base}${path}`);
          assert.deepEqual(await seriousOf(page, lists[path]), [], path);
        }
        await page.context().close();
      });
    }
  }
});
