// Several people on a server with a policy: roles, tenants, single sign-on, shared sessions.
import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import type { Browser, Page } from "playwright-core";
import { conversation, says, send, waits } from "./actions.js";
import { logInAs } from "./login.js";
import { launch, openPage, problemsOf, startSession, TestIssuer, TestServer } from "./server.js";

let issuer: TestIssuer;
let server: TestServer;
let browser: Browser;

const policyOf = (url: string) => `version: 1
identity:
  tokens: tokens
  oidc: [{issuer: "${url}", audiences: [console], insecure_http: true, login: {client_id: console}}]
tenants:
  host:
    members:
      - {token: ada, role: owner}
      - {token: otto, role: observer}
      - {issuer: "${url}", subject: grace, role: participant}
  rival: {members: [{token: rita, role: owner}]}
`;

before(async () => {
  [issuer, browser] = await Promise.all([TestIssuer.start(), launch()]);
  server = await TestServer.start({ policy: policyOf(issuer.url), people: ["ada", "otto", "rita"] });
});

after(async () => {
  await browser?.close();
  await server?.close();
  await issuer?.close();
});

/** Opens a browser for each name, logs it in, and checks that nothing bad happened on its page. */
async function people(names: readonly string[], run: (...pages: Page[]) => Promise<void>): Promise<void> {
  const pages: Page[] = [];
  try {
    for (const name of names) {
      const page = await openPage(browser, server);
      pages.push(page);
      await logInAs(page, server, name);
    }
    await run(...pages);
    for (const page of pages) assert.deepEqual(problemsOf(page), []);
  } finally {
    for (const page of pages) await page.context().close();
  }
}

const idOf = (path: string): string => decodeURIComponent(path.replace("/sessions/", ""));

/** A call with the login of a page. Returns the status. */
async function callAs(page: Page, method: string, data: object): Promise<number> {
  const reply = await page.request.post(`${server.base}/copilot.bridge.v1.${method}`, {
    data,
    headers: { Origin: server.base },
  });
  return reply.status();
}

describe("people", () => {
  test("an observer reads, has no buttons, and is refused by the server as well", () =>
    people(["ada", "otto"], async (ada, otto) => {
      const path = await startSession(ada, server, "list the files for an observer");
      await waits(ada).getByRole("article", { name: "Run a command" }).waitFor();
      await otto.goto(`${server.base}${path}`);
      await says(otto, "I look at the folder.");
      await otto.getByText("You may read this session.").waitFor();
      const card = waits(otto).getByRole("article", { name: "Run a command" });
      await card.waitFor();
      assert.equal(await card.getByRole("button", { name: /Approve|Refuse|session/ }).count(), 0);
      for (const name of ["Send", "Stop", "More", "Fork before this prompt", "New session"]) {
        assert.equal(await otto.getByRole("button", { name, exact: true }).count(), 0, name);
      }
      assert.equal(await otto.getByRole("textbox", { name: "Prompt" }).count(), 0);
      const sessionId = idOf(path);
      assert.equal(await callAs(otto, "SessionService/GetSession", { sessionId }), 200);
      const callbackId = await pendingOf(sessionId);
      const answer = { sessionId, callbackId, answer: { permission: { approveOnce: {} } } };
      assert.equal(await callAs(otto, "CallbackService/Resolve", answer), 403);
      assert.equal(await callAs(otto, "SessionService/Send", { sessionId, prompt: { text: "no" } }), 403);
      assert.equal(await callAs(otto, "SessionService/Abort", { sessionId }), 403);
      assert.equal(await callAs(otto, "SessionService/CreateSession", {}), 403);
      await otto.goto(`${server.base}/inbox`);
      await otto.getByRole("article", { name: "Run a command" }).waitFor();
      await otto.keyboard.press("a");
      await waits(ada).getByRole("button", { name: "Approve" }).click();
      await otto.getByText(/answered by .*ada/).waitFor();
      await says(ada, "The folder has these files");
    }));

  test("another tenant sees nothing", () =>
    people(["ada", "rita"], async (ada, rita) => {
      const path = await startSession(ada, server, "list the files in secret");
      await waits(ada).getByRole("button", { name: "Approve" }).waitFor();
      await rita.goto(`${server.base}/inbox`);
      await rita.getByText("Nothing waits for you").waitFor();
      await rita.goto(`${server.base}/`);
      await rita.getByText("No sessions yet").waitFor();
      const sessionId = idOf(path);
      for (const id of [sessionId, `host/${sessionId}`]) {
        await rita.goto(`${server.base}/sessions/${encodeURIComponent(id)}`);
        await rita.getByText("This session is not open").waitFor();
        assert.equal(await conversation(rita).count(), 0);
        assert.equal(await callAs(rita, "SessionService/GetSession", { sessionId: id }), 404);
        assert.equal(await callAs(rita, "SessionService/Send", { sessionId: id, prompt: { text: "no" } }), 404);
      }
      const list = await rita.request.post(`${server.base}/copilot.bridge.v1.SessionService/ListSessions`, {
        data: {},
        headers: { Origin: server.base },
      });
      assert.deepEqual(await list.json(), {});
      await waits(ada).getByRole("button", { name: "Approve" }).click();
      await says(ada, "The folder has these files");
    }));

  test("a session is shared with another tenant, which takes part until the share ends", () =>
    people(["ada", "rita"], async (ada, rita) => {
      await rita.goto(`${server.base}/inbox`);
      await rita.getByText("Nothing waits for you").waitFor();
      await startSession(ada, server, "list the files together");
      await waits(ada).getByRole("button", { name: "Approve" }).waitFor();
      await ada.getByRole("button", { name: "More" }).click();
      await ada.getByRole("button", { name: "Share…" }).click();
      const dialog = ada.getByRole("dialog");
      await dialog.getByLabel("Tenant").fill("rival");
      await dialog.getByLabel("Access").selectOption({ label: "takes part" });
      await dialog.getByRole("button", { name: "Share", exact: true }).click();
      await dialog.getByText("takes part, offered").waitFor();
      await rita.reload();
      const offer = rita.getByRole("article", { name: "Shared session" });
      await offer.getByText("take part in it").waitFor();
      await offer.getByRole("button", { name: "Accept" }).click();
      await says(rita, "I look at the folder.");
      assert.equal(await rita.getByRole("button", { name: "More" }).count(), 0, "guests have no menu");
      // Only the owner approves access to the machine of its tenant.
      await waits(rita).getByText("Only the session's owner may approve this.").waitFor();
      assert.equal(await waits(rita).getByRole("button", { name: "Approve" }).count(), 0);
      await waits(rita).getByRole("button", { name: "Refuse" }).click();
      await waits(rita).getByLabel(/Tell the agent why/).fill("Show me the README only");
      await waits(rita).getByRole("button", { name: "Refuse with feedback" }).click();
      // Names of other tenants' users stay hidden.
      await ada.getByText("answered elsewhere").waitFor();
      await says(rita, "I understand: only the README.");
      await send(rita, "hello from a guest");
      await says(ada, "You said: hello from a guest");
      await dialog.getByRole("button", { name: "End" }).click();
      await rita.getByText("The session was closed.").waitFor();
      await rita.goto(`${server.base}/`);
      await rita.getByText("No sessions yet").waitFor();
    }));

  test("single sign-on: log in at the issuer, come back to the page, and log out there", async () => {
    const page = await openPage(browser, server, {}, issuer.url);
    await page.goto(`${server.base}/usage`);
    await page.getByRole("link", { name: "Continue with single sign-on" }).click();
    await page.getByLabel("Subject").fill("grace");
    await page.getByRole("button", { name: "Log in" }).click();
    await page.getByRole("heading", { name: "Usage" }).waitFor();
    assert.equal(new URL(page.url()).pathname, "/usage");
    await page.getByText("Participant").waitFor();
    const atIssuer = page.waitForRequest((request) => request.url().startsWith(`${issuer.url}/logout`));
    await page.getByRole("button", { name: "Log out" }).click();
    await atIssuer;
    await page.getByRole("heading", { name: "Log in" }).waitFor();
    assert.equal(await callAs(page, "SessionService/ListSessions", {}), 401);
    assert.deepEqual(problemsOf(page), []);
    await page.context().close();
  });

  test("a subject without a membership is refused, with a way back", async () => {
    const page = await openPage(browser, server, {}, issuer.url);
    await page.goto(`${server.base}/login`);
    await page.getByRole("link", { name: "Continue with single sign-on" }).click();
    await page.getByLabel("Subject").fill("mallory");
    await page.getByRole("button", { name: "Log in" }).click();
    await page.waitForURL(`${server.base}/**`);
    await page.getByText(/refused|no role|not a member|mallory/).first().waitFor();
    assert.equal(await callAs(page, "SessionService/ListSessions", {}), 401);
    await page.context().close();
  });
});

/** The id of the request that waits in a session. */
async function pendingOf(sessionId: string): Promise<string> {
  const { callbacks } = (await server.call("CallbackService/ListPending", { sessionId }, server.tokenOf("ada"))) as {
    callbacks: { callbackId: string }[];
  };
  const [first] = callbacks;
  if (!first) throw new Error("nothing waits");
  return first.callbackId;
}
