// Text of models and tools does nothing on the page.
import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import type { Browser } from "playwright-core";
import { logIn } from "./login.js";
import { launch, openPage, problemsOf, startSession, TestServer } from "./server.js";

let server: TestServer;
let browser: Browser;

before(async () => {
  [server, browser] = await Promise.all([TestServer.start(), launch()]);
});

after(async () => {
  await browser?.close();
  await server?.close();
});

describe("hostile content", () => {
  test("scripts, pictures, links and controls are text", async () => {
    const page = await openPage(browser, server);
    page.on("dialog", (dialog) => void dialog.dismiss().then(() => assert.fail("a dialog was opened")));
    await logIn(page, server);
    await startSession(page, server, "hostile <script>window.attacked = 'prompt'</script>");
    const conversation = page.getByRole("region", { name: "Conversation" });
    const card = page.getByRole("region", { name: "Waits for you" });
    await card.getByText("<img src=x onerror=alert(1)>").waitFor();
    await conversation.getByText('<script>window.attacked = "script"</script>').first().waitFor();
    await card.getByRole("button", { name: "Approve" }).click();
    await conversation.getByText("Done with the hostile content.").waitFor();
    await conversation.getByRole("button", { name: /^Shell/ }).click();
    await conversation.getByText("red <script>window.attacked=3</script>").last().waitFor();
    await conversation.getByText("⟦U+202E⟧reversed").waitFor();
    const found = await page.evaluate(() => ({
      attacked: (window as { attacked?: unknown }).attacked,
      elements: [...document.querySelectorAll("main :is(script, img, iframe, form[action], style, object, embed, base, link, b)")].map(
        (element) => element.outerHTML,
      ),
      handlers: [...document.querySelectorAll("main *")].flatMap((element) =>
        element.getAttributeNames().filter((name) => name.startsWith("on")),
      ),
      links: [...document.querySelectorAll<HTMLAnchorElement>("main .prose a[href]")].map((link) => link.getAttribute("href")),
    }));
    assert.deepEqual(found, { attacked: undefined, elements: [], handlers: [], links: ["https://example.com/page"] });
    assert.deepEqual(problemsOf(page), []);
    await page.context().close();
  });

  test("a line of 5 MiB leaves the page usable", async () => {
    const page = await openPage(browser, server);
    await logIn(page, server);
    await startSession(page, server, "a line of 5 MiB");
    await page.getByRole("button", { name: /^Show more/ }).waitFor({ timeout: 90_000 });
    const began = Date.now();
    await page.getByRole("textbox", { name: "Prompt" }).fill("still there?");
    await page.getByRole("button", { name: /^Show more/ }).click();
    await page.getByRole("button", { name: /^Theme/ }).click();
    assert.ok(Date.now() - began < 5_000, `three clicks took ${Date.now() - began} ms`);
    assert.ok((await page.evaluate(() => document.body.innerText.length)) < 200_000, "the line is shown in part");
    assert.deepEqual(problemsOf(page), []);
    await page.context().close();
  });
});
