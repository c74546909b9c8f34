// Journeys through the console on a real server, with the real CLI and a scripted model.
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { after, before, describe, test } from "node:test";
import type { Browser, BrowserContextOptions, Page } from "playwright-core";
import { conversation, counted, prompts, says, send, waits } from "./actions.js";
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

  test("start a session by Enter, find it by its id, and look at the keys", () =>
    journey(async (page) => {
      await page.keyboard.press("c");
      const dialog = page.getByRole("dialog", { name: "New session" });
      await dialog.getByLabel("Prompt").fill("by keyboard");
      await page.keyboard.press("Enter");
      await dialog.waitFor({ state: "detached" });
      await conversation(page).getByText("by keyboard").first().waitFor();
      const id = new URL(page.url()).pathname.split("/").pop() ?? "";
      await page.keyboard.press("Escape");
      await page.keyboard.press("Escape");
      await page.getByRole("listitem").filter({ hasText: id }).filter({ hasText: "by keyboard" }).waitFor();
      await page.keyboard.press("?");
      await page.getByRole("dialog", { name: "Keys" }).getByText("Steer the running turn").waitFor();
      await page.keyboard.press("Escape");
      await page.getByRole("dialog").waitFor({ state: "detached" });
    }));

  test("the fleet shows the last message of each session, as plain text", () =>
    journey(async (page) => {
      const path = await startSession(page, server, "hello words");
      await says(page, "You said: hello words");
      await page.keyboard.press("Escape");
      await page.keyboard.press("Escape");
      const sessionId = decodeURIComponent(path.split("/").pop() ?? "");
      const row = page.getByRole("listitem").filter({ hasText: sessionId });
      await row.getByText("You said: hello words", { exact: true }).waitFor();
      const text = `**more** words\n\n- <img src=x onerror='window.attacked=1'> \`here\`${" and there".repeat(60)}`;
      await server.call("SessionService/SendAndWait", { sessionId, prompt: { text } });
      await row.getByText("You said: more words <img src=x onerror='window.attacked=1'> here and there").waitFor();
      assert.equal(await row.locator("img").count(), 0);
      const widths = await row.getByRole("link").evaluate(({ scrollWidth, clientWidth }) => [scrollWidth, clientWidth]);
      assert.equal(widths[0], widths[1], "the line is cut");
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
      await second.getByText(/answered by \S/).waitFor();
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
      await startSession(page, server, "hello before the crash");
      await says(page, "You said: hello before the crash");
      await send(page, "count slowly through a crash");
      await says(page, /1 2 3/);
      await server.kill();
      await page.getByText("Reconnecting…").waitFor();
      const before = await counted(page);
      await server.run();
      await page.getByText("Reconnecting…").waitFor({ state: "detached" });
      const stop = page.getByRole("button", { name: "Stop" });
      await stop.or(page.getByRole("button", { name: "Send" })).first().waitFor();
      // The turn may end by itself at any moment: the crash has ended its process.
      if (await stop.isVisible()) await stop.click({ timeout: 2000 }).catch(() => undefined);
      await page.getByRole("button", { name: "Send" }).waitFor();
      // Each prompt and each number is there once, in order, also those that arrived before the crash.
      const after = await counted(page);
      assert.ok(after.length >= before.length, `${before.length} numbers before the crash, ${after.length} after it`);
      assert.deepEqual(after, after.map((_, at) => at + 1));
      await send(page, "are you there?");
      await says(page, "You said: are you there?");
      const sent = ["hello before the crash", "count slowly through a crash", "are you there?"];
      assert.deepEqual(await prompts(page), sent);
      assert.equal(await conversation(page).getByText("You said: hello before the crash").count(), 1);
      await page.reload();
      await says(page, "You said: are you there?");
      assert.deepEqual(await prompts(page), sent);
    }));

  test("offline and back", () =>
    journey(async (page) => {
      await startSession(page, server, "wait at the gate of the network");
      await says(page, "Before the gate.");
      await page.context().setOffline(true);
      await page.getByText("Reconnecting…").waitFor();
      await server.release("gate");
      await page.context().setOffline(false);
      await page.getByText("Reconnecting…").waitFor({ state: "detached" });
      await says(page, "After the gate.");
      const text = await conversation(page).innerText();
      assert.equal(text.split("Before the gate.").length, 2, "the text is there once");
      await send(page, "hello again");
      await says(page, "You said: hello again");
    }));

  test("steer a running turn", () =>
    journey(async (page) => {
      await startSession(page, server, "wait for a steering word");
      await says(page, "Before the word.");
      await waits(page).getByRole("button", { name: "Approve" }).waitFor();
      await page.getByRole("textbox", { name: "Prompt" }).fill("the steering word");
      await page.keyboard.press("Control+Enter");
      await page.getByRole("textbox", { name: "Prompt" }).and(page.locator(":empty")).waitFor();
      await waits(page).getByRole("button", { name: "Approve" }).click();
      await says(page, "I heard the steering word.");
      await page.getByRole("button", { name: "Send" }).waitFor();
      // A prompt of the queue would come after the model's word about the files.
      assert.equal(await conversation(page).getByText("The entry point is").count(), 0);
    }));

  test("fill in a form", () =>
    journey(async (page) => {
      const path = await startSession(page, server, "hello form");
      await says(page, "You said: hello form");
      const properties = {
        name: { schemaPropertyString: { title: "Your name" } },
        urgent: { schemaPropertyBoolean: { title: "Urgent" } },
        level: { schemaPropertyNumber: { type: "UI_ELICITATION_SCHEMA_PROPERTY_NUMBER_TYPE_INTEGER", title: "Level", minimum: 1, maximum: 5 } },
      };
      const reply = server.call("copilot.cli.v1.SessionUiService/Elicitation", {
        sessionId: path.split("/").at(-1),
        message: "Who deploys, and how?",
        requestedSchema: { properties, required: ["name"] },
      });
      const card = waits(page).getByRole("article").filter({ hasText: "Who deploys, and how?" });
      await card.getByRole("button", { name: "Send" }).click();
      await card.getByRole("alert").waitFor();
      await card.getByLabel("Your name").fill("Ada");
      await card.getByLabel("Urgent").check();
      await card.getByLabel("Level").fill("3");
      await card.getByRole("button", { name: "Send" }).click();
      const { action, content } = (await reply) as { action: string; content: Record<string, object> };
      assert.match(action, /ACCEPT$/);
      const values = { name: { stringValue: "Ada" }, urgent: { boolValue: true }, level: { doubleValue: 3 } };
      assert.deepEqual(content, values);
      await card.waitFor({ state: "detached" });
    }));

  test("send a plan back, and approve it", () =>
    journey(async (page) => {
      const sessionId = (await startSession(page, server, "hello plan")).split("/").at(-1);
      await says(page, "You said: hello plan");
      const plan = (text: string) =>
        server.call("SessionService/Send", { sessionId, prompt: { text, agentMode: "SEND_AGENT_MODE_PLAN" } });
      const card = waits(page).getByRole("article", { name: "Approve a plan" });
      await plan("plan the release");
      await card.getByText("First the tests, then the tag.").waitFor();
      await card.getByLabel("Feedback").fill("Tag first");
      await card.getByRole("button", { name: "Keep planning" }).click();
      await says(page, /About the plan:[^]*Tag first/);
      await plan("plan the release once more");
      await card.getByRole("button", { name: "Interactive" }).click();
      await card.waitFor({ state: "detached" });
      await page.getByRole("button", { name: "Send" }).waitFor();
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

  test("export a session as a file, which is refused during a turn", () =>
    journey(async (page) => {
      const path = await startSession(page, server, "to be kept");
      await says(page, "You said: to be kept");
      await page.getByRole("button", { name: "Send" }).waitFor();
      const chosen = async () => {
        await page.getByRole("button", { name: "More" }).click();
        await page.getByRole("button", { name: "Export" }).click();
      };
      const [file] = await Promise.all([page.waitForEvent("download"), chosen()]);
      const id = decodeURIComponent(path.split("/").pop() ?? "");
      assert.equal(file.suggestedFilename(), `${id}.tar.gz`);
      const tar = (...options: string[]) => execFileSync("tar", options, { encoding: "utf8" });
      const archive = await file.path();
      assert.match(tar("-tzf", archive), /events\.jsonl/);
      assert.match(tar("-xzOf", archive), /You said: to be kept/);
      await send(page, "list the files");
      await waits(page).getByRole("button", { name: "Approve" }).waitFor();
      await chosen();
      await page.getByRole("dialog", { name: "That did not work" }).getByText(/not finished/).waitFor();
      await page.getByRole("dialog").getByRole("button", { name: "Close" }).click();
      await waits(page).getByRole("button", { name: "Approve" }).click();
      await says(page, "The folder has these files");
    }));

  test("drain a CLI process, and replace it", () =>
    journey(async (page) => {
      const path = await startSession(page, server, "hello process");
      await says(page, "You said: hello process");
      await page.goto(`${server.base}/runtimes`);
      await page.getByText("serving", { exact: true }).waitFor();
      // The log is of this server, which has or has not warned since its start.
      await page.getByText("No warnings since the start").or(page.getByRole("list", { name: "Warnings" })).waitFor();
      const row = page.getByRole("row").filter({ hasText: "pid" }).first();
      const before = await row.getByText(/^pid \d+$/).innerText();
      await row.getByRole("button", { name: /^Drain/ }).click();
      await row.getByText("draining", { exact: true }).waitFor();
      await row.getByRole("button", { name: /^Accept sessions/ }).click();
      await row.getByText("ready", { exact: true }).waitFor();
      await row.getByRole("button", { name: /^Recycle/ }).click();
      await page.getByRole("dialog").getByLabel("Time for running turns, in seconds").fill("5");
      await page.getByRole("dialog").getByRole("button", { name: "Replace the process" }).click();
      await page.getByText(before, { exact: true }).waitFor({ state: "detached" });
      await page.goto(`${server.base}${path}`);
      await send(page, "are you another one?");
      await says(page, "You said: are you another one?");
      assert.deepEqual(await prompts(page), ["hello process", "are you another one?"]);
    }));

  test("attach files by button, drop and paste, up to the limit", () =>
    journey(async (page) => {
      await startSession(page, server, "hello files");
      await says(page, "You said: hello files");
      const chosen = page.getByRole("list", { name: "Attachments" });
      const pixel = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNkYPhfDwAChwGA60e6kgAAAABJRU5ErkJggg==";
      const image = { name: "pixel.png", mimeType: "image/png", buffer: Buffer.from(pixel, "base64") };
      await page.getByLabel("Files", { exact: true }).setInputFiles([image]);
      await chosen.getByText("pixel.png").waitFor();
      const give = (kind: "drop" | "paste", name: string, size: number) =>
        page.getByRole("textbox", { name: "Prompt" }).evaluate(
          (field, [event, file, length]) => {
            const data = new DataTransfer();
            data.items.add(new File(["x".repeat(length as number)], file as string, { type: "text/plain" }));
            const init = { bubbles: true, cancelable: true };
            const given = event === "drop" ? new DragEvent("drop", { ...init, dataTransfer: data }) : new ClipboardEvent("paste", { ...init, clipboardData: data });
            field.dispatchEvent(given);
          },
          [kind, name, size] as const,
        );
      await give("drop", "dropped.txt", 5);
      await chosen.getByText("dropped.txt").waitFor();
      await give("paste", "pasted.txt", 2048);
      await chosen.getByText("2.0 KiB").waitFor();
      await give("paste", "large.bin", 17 << 20);
      await page.getByRole("alert").getByText("large.bin has 17 MiB. The server takes at most 12 MiB.").waitFor();
      await page.getByRole("button", { name: "Remove dropped.txt" }).click();
      await send(page, "look at these");
      await chosen.waitFor({ state: "detached" });
      const prompt = conversation(page).getByRole("article", { name: "Prompt" }).last();
      await prompt.getByText("pixel.png").waitFor();
      await prompt.getByText("pasted.txt").waitFor();
      assert.equal(await prompt.getByText("dropped.txt").count(), 0);
      await says(page, "You said: look at these");
    }));

  test("labels of a session are set, shown, filtered and removed", () =>
    journey(async (page) => {
      await startSession(page, server, "hello labels");
      await page.getByRole("button", { name: "More" }).click();
      await page.getByRole("button", { name: "Labels…" }).click();
      const dialog = page.getByRole("dialog");
      for (const [key, value] of [["team", "payments"], ["urgent", ""]] as const) {
        await dialog.getByLabel("Key").fill(key);
        await dialog.getByLabel("Value").fill(value);
        await dialog.getByRole("button", { name: "Set" }).click();
        await dialog.getByText(value ? `${key}=${value}` : key, { exact: true }).waitFor();
      }
      await dialog.getByLabel("Key").fill("not a key");
      await dialog.getByRole("button", { name: "Set" }).click();
      await dialog.getByRole("alert").waitFor();
      await dialog.getByRole("button", { name: "Remove urgent" }).click();
      await dialog.getByText("urgent", { exact: true }).waitFor({ state: "detached" });
      await dialog.getByRole("button", { name: "Close" }).click();
      await page.getByRole("banner").or(page.locator("header")).getByText("team=payments").first().waitFor();
      await page.goto(`${server.base}/`);
      await page.getByLabel("Label").selectOption("team=payments");
      await page.getByRole("link", { name: /hello labels/ }).waitFor();
      assert.equal(await page.getByRole("list", { name: "Sessions" }).getByRole("link").count(), 1);
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
