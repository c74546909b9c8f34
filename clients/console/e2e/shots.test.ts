// Pictures of each page for the documentation, made where CONSOLE_SHOTS names a folder.
import assert from "node:assert/strict";
import { mkdir, stat } from "node:fs/promises";
import { join } from "node:path";
import { after, before, test } from "node:test";
import type { Browser, Page } from "playwright-core";
import { logIn } from "./login.js";
import { launch, openPage, problemsOf, startSession, TestServer } from "./server.js";

const folder = process.env["CONSOLE_SHOTS"] ?? "";
let server: TestServer;
let browser: Browser;

before(async () => {
  [server, browser] = await Promise.all([TestServer.start(), launch()]);
});

after(async () => {
  await browser?.close();
  await server?.close();
});

const maxBytes = 150 * 1024;

async function shoot(page: Page, name: string): Promise<void> {
  const path = join(folder, `${name}.png`);
  await page.mouse.move(0, 0);
  await page.screenshot({ path, caret: "hide", animations: "disabled" });
  const { size } = await stat(path);
  assert.ok(size <= maxBytes, `${name}.png has ${size} bytes`);
}

/** Sessions in the states that the pages show. */
async function populate(page: Page): Promise<Record<"done" | "edit" | "agent", string>> {
  const approve = async () => {
    await page.getByRole("button", { name: "Approve" }).click();
    await page.getByRole("button", { name: "Send" }).waitFor();
  };
  for (const [id, text, team] of [
    ["checkout-2", "Write tests for the checkout", "payments"],
    ["search-1", "Explain the search index", "search"],
    ["release-9", "Draft the release notes", "platform"],
  ]) {
    const config = { workingDirectory: server.work };
    await server.call("SessionService/CreateSession", { sessionId: id, config, labels: { team } });
    await server.call("SessionService/SendAndWait", { sessionId: id, prompt: { text } });
  }
  const done = await startSession(page, server, "list the files");
  await approve();
  const agent = await startSession(page, server, "ask an explorer");
  await page.getByText("The explorer says").waitFor();
  await startSession(page, server, "which database");
  await page.getByText("Which database should").first().waitFor();
  await startSession(page, server, "list the files of the service");
  await page.getByRole("button", { name: "Approve" }).waitFor();
  const edit = await startSession(page, server, "fix the greeting");
  await page.getByRole("button", { name: "Approve" }).waitFor();
  return { done, edit, agent };
}

test("pictures of each page", { skip: folder === "" }, async () => {
  await mkdir(folder, { recursive: true });
  const first = await openPage(browser, server);
  await logIn(first, server);
  const paths = await populate(first);
  for (const [suffix, options] of [
    ["", {}],
    ["-dark", { colorScheme: "dark" }],
    ["-phone", { viewport: { width: 390, height: 780 }, isMobile: true, hasTouch: true }],
  ] as const) {
    const page = await openPage(browser, server, options);
    await page.goto(`${server.base}/login`);
    await page.getByLabel("Token").waitFor();
    await shoot(page, `login${suffix}`);
    await logIn(page, server);
    await page.getByRole("link", { name: /release notes/ }).waitFor();
    await shoot(page, `fleet${suffix}`);
    await page.goto(`${server.base}/inbox`);
    await page.getByRole("article").nth(2).waitFor();
    await shoot(page, `inbox${suffix}`);
    await page.goto(`${server.base}${paths.done}`);
    await page.getByRole("cell", { name: "the program" }).waitFor();
    await page.getByRole("button", { name: /^Shell/ }).click();
    await page.getByText("main.go\n").first().waitFor();
    await shoot(page, `session${suffix}`);
    await page.goto(`${server.base}${paths.edit}`);
    await page.getByRole("article", { name: "Change a file" }).waitFor();
    await shoot(page, `permission${suffix}`);
    await page.goto(`${server.base}${paths.agent}/timeline`);
    await page.getByRole("option").last().waitFor();
    await page.getByText('"type":').waitFor();
    await shoot(page, `timeline${suffix}`);
    await page.goto(`${server.base}/runtimes`);
    await page.getByText("ready").waitFor();
    await shoot(page, `runtimes${suffix}`);
    await page.goto(`${server.base}/usage`);
    await page.getByText("Tokens sent").waitFor();
    await shoot(page, `usage${suffix}`);
    assert.deepEqual(problemsOf(page), []);
    await page.context().close();
  }
});
