import type { BrowserContext, Page } from "playwright-core";
import type { TestServer } from "./server.js";

const cookies = new WeakMap<TestServer, Awaited<ReturnType<BrowserContext["cookies"]>>>();

/** Logs a page in: the first one with the link that the server printed, which works once, others with its cookie. */
export async function logIn(page: Page, server: TestServer): Promise<void> {
  const known = cookies.get(server);
  if (known) await page.context().addCookies(known);
  await page.goto(known ? server.base : server.link);
  await page.getByRole("heading", { name: "Fleet" }).waitFor();
  if (!known) cookies.set(server, await page.context().cookies());
}

/** Logs a page in with a static token of the policy, on the login page. */
export async function logInAs(page: Page, server: TestServer, name: string): Promise<void> {
  await page.goto(server.base);
  await page.getByLabel("Token").fill(server.tokenOf(name));
  await page.getByRole("button", { name: "Log in" }).click();
  await page.getByRole("heading", { name: "Fleet" }).waitFor();
}
