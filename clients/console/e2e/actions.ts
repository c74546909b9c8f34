// What a person does and sees on a session's page.
import type { Locator, Page } from "playwright-core";

export const conversation = (page: Page): Locator => page.getByRole("region", { name: "Conversation" });

/** The requests that wait, on the session's page. */
export const waits = (page: Page): Locator => page.getByRole("region", { name: "Waits for you" });

export async function says(page: Page, text: string | RegExp): Promise<void> {
  await conversation(page).getByText(text).first().waitFor();
}

export async function send(page: Page, text: string): Promise<void> {
  await page.getByRole("textbox", { name: "Prompt" }).fill(text);
  await page.keyboard.press("Enter");
}

/** The prompts of the conversation, in order. */
export async function prompts(page: Page): Promise<string[]> {
  const texts = await conversation(page).getByRole("article", { name: "Prompt" }).allInnerTexts();
  return texts.map((text) => text.trim());
}

/** The numbers of an agent that counts, in the order of the page. */
export async function counted(page: Page): Promise<number[]> {
  const texts = await conversation(page).getByRole("article", { name: "Agent" }).allInnerTexts();
  return texts.filter((text) => /^[\d\s]+$/.test(text)).flatMap((text) => text.trim().split(/\s+/).map(Number));
}
