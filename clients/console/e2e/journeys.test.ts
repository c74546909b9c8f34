// Journeys through the console on a real server, with the real CLI and a scripted model.
import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import type { Browser, BrowserContextOptions, Page } from "playwright-core";
import { logIn } from "./login.js";
import { launch, openPage, problemsOf, startSession, TestServer, watch } from "./server.js";

let server: TestServer;
let browser: Browser;

before(async () => {
  [server, browser] = await Promise.all([TestServer.start(), launch()]);
});

after(async () => {
  await browser?.close();
  await server?.close();
});

/** Runs a journey in a browser of its own that is logged in, and checks that nothing bad happened. */
async function journey(run: (page: Page) => Promise<void>, options: BrowserContextOptions = {}): Promise<void> {
  const page = await openPage(browser, server, options);
  try {
    await logIn(page, server);
    await run(page);
    assert.deepEqual(problemsOf(page), []);
  } finally {
    await page.context().close();
  }
}

const conversation = (page: Page) => page.getByRole("region", { name: "Conversation" });
const says = (page: Page, text: string | RegExp) => conversation(page).getByText(text).first().waitFor();
const waits = (page: Page) => page.getByRole("region", { name: "Waits for you" });

async function send(page: Page, text: string): Promise<void> {
  await page.getByRole("textbox", { name: "Prompt" }).fill(text);
  await page.keyboard.press("Enter");
}

describe("journeys", () => {
  test("start a session, watch it stream, approve a permission", () =>
    journey(async (page) => {
      await startSession(page, server, "list the files");
      await says(page, "I look at the folder.");
      const card = waits(page).getByRole("article", { name: "Run a command" });
      await card.getByText("ls -1").waitFor();
      await card.getByRole("button", { name: "Approve" }).click();
      await conversation(page).getByRole("cell", { name: "the program" }).waitFor();
      await card.waitFor({ state: "detached" });
      await page.getByRole("button", { name: "Send" }).waitFor();
      await conversation(page).getByRole("button", { name: /^Shell/ }).click();
      await says(page, "README.md\nmain.go");
      assert.match(await page.title(), /^list the files/);
    }));

  test("refuse a permission with feedback, by keyboard in the inbox", () =>
    journey(async (page) => {
      await startSession(page, server, "list the files again");
      await waits(page).waitFor();
      await page.keyboard.press("Escape");
      await page.keyboard.press("g");
      await page.keyboard.press("i");
      await page.getByRole("heading", { name: "Inbox" }).waitFor();
      const card = page.getByRole("article", { name: "Run a command" });
      await card.waitFor();
      await page.keyboard.press("r");
      await page.keyboard.type("Show me the README only");
      await page.keyboard.press("Enter");
      await page.getByText("Nothing waits for you").waitFor();
      await page.keyboard.press("g");
      await page.keyboard.press("f");
      await page.getByRole("link", { name: /list the files again/ }).click();
      await says(page, "I understand: only the README.");
    }));

  test("answer a question, and one with a text of one's own", () =>
    journey(async (page) => {
      await startSession(page, server, "which database");
      await waits(page).getByText("Which database should the service use?").waitFor();
      await waits(page).getByRole("button", { name: "SQLite" }).click();
      await says(page, /Good\..*SQLite/);
      await send(page, "which database once more");
      await waits(page).getByRole("textbox", { name: "Answer" }).fill("DuckDB");
      await page.keyboard.press("Enter");
      await says(page, /Good\..*DuckDB/);
    }));

  test("approve the change of a file, whose diff is shown", () =>
    journey(async (page) => {
      await server.restoreFiles();
      await startSession(page, server, "fix the greeting");
      const card = waits(page).getByRole("article", { name: "Change a file" });
      await card.getByText('println("Hello")').waitFor();
      await page.keyboard.press("Escape");
      await page.getByRole("link", { name: /fix the greeting/ }).first().click();
      await card.getByRole("button", { name: "Approve" }).click();
      await says(page, "The greeting is right now.");
      await conversation(page).getByRole("figure", { name: /Changes of .*main\.go/ }).waitFor();
    }));

  test("of two tabs the first answer counts, and the other one says so", () =>
    journey(async (first) => {
      const path = await startSession(first, server, "list the files in two tabs");
      const second = await first.context().newPage();
      watch(second, server);
      await second.goto(`${server.base}/inbox`);
      const card = second.getByRole("article", { name: "Run a command" });
      await card.waitFor();
      await waits(first).getByRole("button", { name: "Approve" }).click();
      await card.waitFor({ state: "detached" });
      await second.getByText(/answered (by|elsewhere)/).waitFor();
      await second.goto(`${server.base}${path}`);
      await conversation(second).getByRole("cell", { name: "the program" }).waitFor();
      assert.deepEqual(problemsOf(second), []);
    }));

  test("a sub-agent's steps are folded", () =>
    journey(async (page) => {
      await startSession(page, server, "ask an explorer");
      await says(page, "The explorer says:");
      await conversation(page).getByRole("button", { name: /^Show \d+ step/ }).click();
      await says(page, "The entry point is");
    }));

  test("stop a turn", () =>
    journey(async (page) => {
      await startSession(page, server, "count slowly");
      await says(page, /1 2 3/);
      await page.getByRole("button", { name: "Stop" }).click();
      await says(page, "The turn was stopped");
      await send(page, "and now?");
      await says(page, "You said: and now?");
    }));

  test("queue a prompt while a turn runs", () =>
    journey(async (page) => {
      await startSession(page, server, "wait at the gate of the queue");
      await says(page, "Before the gate.");
      await send(page, "the queued one");
      await page.getByRole("textbox", { name: "Prompt" }).and(page.locator(":empty")).waitFor();
      await server.release("gate");
      await says(page, "After the gate.");
      await says(page, "You said: the queued one");
    }));

  test("reload in the middle of a turn", () =>
    journey(async (page) => {
      await startSession(page, server, "count slowly, reloaded");
      await says(page, /1 2 3/);
      await page.reload();
      await says(page, /1 2 3 .*60/);
      const text = (await conversation(page).innerText()).replaceAll(/\s+/g, " ");
      assert.match(text, / 9 10 11 12 /);
      assert.equal(text.split(" 1 2 3 4 ").length, 2, "the text is there once");
      await page.getByRole("button", { name: "Stop" }).click();
      await says(page, "The turn was stopped");
    }));

  test("the server is killed and comes back while a turn streams", () =>
    journey(async (page) => {
      await startSession(page, server, "count slowly through a crash");
      await says(page, /1 2 3/);
      await server.kill();
      await page.getByText("Reconnecting…").waitFor();
      await server.run();
      await page.getByText("Reconnecting…").waitFor({ state: "detached" });
      assert.equal(await conversation(page).getByText("count slowly through a crash").count(), 1);
      const stop = page.getByRole("button", { name: "Stop" });
      await stop.or(page.getByRole("button", { name: "Send" })).first().waitFor();
      if (await stop.isVisible()) await stop.click();
      await page.getByRole("button", { name: "Send" }).waitFor();
      await send(page, "are you there?");
      await says(page, "You said: are you there?");
    }));

  test("offline and back", () =>
    journey(async (page) => {
      await startSession(page, server, "hello");
      await says(page, "You said: hello");
      await page.context().setOffline(true);
      await page.reload().catch(() => undefined);
      await page.context().setOffline(false);
      await page.goto(`${server.base}/`);
      await page.getByRole("link", { name: /hello/ }).first().click();
      await says(page, "You said: hello");
    }));

  test("fork from a prompt, close the copy and open it again", () =>
    journey(async (page) => {
      const path = await startSession(page, server, "first prompt");
      await says(page, "You said: first prompt");
      await send(page, "second prompt");
      await says(page, "You said: second prompt");
      await conversation(page).getByRole("article", { name: "Prompt" }).last().hover();
      await page.getByRole("button", { name: "Fork before this prompt" }).last().click();
      await page.waitForURL((url) => url.pathname !== path);
      await says(page, "You said: first prompt");
      await send(page, "another second prompt");
      await says(page, "You said: another second prompt");
      assert.equal(await conversation(page).getByText("You said: second prompt").count(), 0);
      const copy = new URL(page.url()).pathname;
      await page.getByRole("button", { name: "More" }).click();
      await page.getByRole("button", { name: "Close" }).click();
      await page.getByRole("heading", { name: "Fleet" }).waitFor();
      await page.goto(`${server.base}${copy}`);
      await page.getByRole("button", { name: "Open the session" }).click();
      await says(page, "You said: another second prompt");
    }));

  test("sessions of other programs wait for the console", () =>
    journey(async (page) => {
      await page.goto(`${server.base}/inbox`);
      await page.getByText("Nothing waits for you").waitFor();
      const config = { workingDirectory: server.work };
      await server.call("SessionService/CreateSession", { sessionId: "other-program", config });
      const turn = server.call("SessionService/SendAndWait", {
        sessionId: "other-program",
        prompt: { text: "list the files" },
      });
      await page.getByRole("article", { name: "Run a command" }).getByRole("button", { name: "Approve" }).click();
      assert.match(JSON.stringify(await turn), /main\.go/);
    }));

  test("a phone", () =>
    journey(
      async (page) => {
        await startSession(page, server, "list the files on a phone");
        await waits(page).getByRole("button", { name: "Approve" }).click();
        await conversation(page).getByRole("cell", { name: "the program" }).waitFor();
        for (const name of ["Inbox", "Fleet"]) {
          await page.getByRole("navigation").getByRole("link", { name }).click();
          await page.getByRole("heading", { name }).waitFor();
          const wide = await page.evaluate(() => document.documentElement.scrollWidth);
          assert.ok(wide <= 360, `${name} is ${wide} px wide`);
        }
      },
      { viewport: { width: 360, height: 740 }, hasTouch: true, isMobile: true },
    ));
});
