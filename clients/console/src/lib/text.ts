// Text of models and tools is hostile until it is made harmless. These functions are pure.

/** Characters that change the order of text on the screen, and invisible ones that hide text. */
const controls = /[\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\u{e0000}-\u{e007f}]/gu;

/** Other control characters, except tab, line feed and carriage return. */
const c0 = /[\u0000-\u0008\u000b\u000c\u000e-\u001a\u001c-\u001f\u007f-\u009f]/g;

/** Escape sequences of terminals: CSI, OSC and single ones. */
const ansi = /\u001b(?:\[[0-?]*[ -/]*[@-~]|\][^\u0007\u001b]*(?:\u0007|\u001b\\)?|[PX^_][^\u001b]*(?:\u001b\\)?|[ -/]*[0-~])|\u001b/g;

/** Makes characters visible that change the order of text or hide it: "⟦U+202E⟧". Emoji keep their joiner. */
export function visible(text: string): string {
  return text.replace(controls, (character, at: number, whole: string) => {
    if (character === "\u200d" && isEmoji(whole, at)) return character;
    return `⟦U+${(character.codePointAt(0) ?? 0).toString(16).toUpperCase().padStart(4, "0")}⟧`;
  });
}

/** Reports whether a joiner stands between two emoji. */
function isEmoji(text: string, at: number): boolean {
  return /[\p{Extended_Pictographic}\u{1f3fb}-\u{1f3ff}\ufe0f]$/u.test(text.slice(Math.max(0, at - 2), at)) &&
    /^\p{Extended_Pictographic}/u.test(text.slice(at + 1, at + 3));
}

/** Text of a terminal without its escape sequences. A carriage return replaces the line, as in a terminal. */
export function plain(text: string): string {
  const lines = text.replace(ansi, "").replaceAll("\r\n", "\n");
  return lines.includes("\r")
    ? lines
        .split("\n")
        .map((line) => line.slice(line.lastIndexOf("\r", line.length - 2) + 1))
        .join("\n")
        .replaceAll("\r", "")
        .replace(c0, "�")
    : lines.replace(c0, "�");
}

/** Output of a tool as it may be shown. */
export function output(text: string): string {
  return visible(plain(text));
}

/** A text that is shown in part. */
export interface Clipped {
  readonly text: string;
  /** Characters that are left out. */
  readonly hidden: number;
}

/** The beginning of a text, up to a limit of lines and of characters. */
export function clip(text: string, maxLines: number, maxChars: number): Clipped {
  let end = Math.min(text.length, maxChars);
  let at = -1;
  for (let line = 0; line < maxLines; line++) {
    at = text.indexOf("\n", at + 1);
    if (at < 0 || at >= end) break;
    if (line === maxLines - 1) end = at;
  }
  // Not in the middle of a pair of surrogates.
  if (end < text.length && /[\ud800-\udbff]/.test(text[end - 1] ?? "")) end--;
  return { text: text.slice(0, end), hidden: text.length - end };
}

/** Marks of Markdown at the beginning of a line, lines of tables and rules, and marks between words. */
const blockMarks = /^[ \t]*(?:#{1,6}|>+|[-+*])[ \t]+|^[ \t]*[-=:|*_ ]{3,}$|\|/gm;
const inlineMarks = /\*\*|~~|`/g;

/** The beginning of a Markdown text as plain text in one line, without its commonest marks. */
export function oneLine(text: string, max = 300): string {
  const begin = output(clip(text, Number.POSITIVE_INFINITY, 4 * max).text);
  const words = begin.replace(blockMarks, " ").replace(inlineMarks, "").replace(/\s+/g, " ").trim();
  return clip(words, 1, max).text;
}

/** The first line with text, for titles. */
export function firstLine(text: string, max = 120): string {
  const line = /\S[^\n]*/.exec(text.slice(0, 4 * max))?.[0].trim() ?? "";
  return line.length > max ? `${line.slice(0, max - 1)}…` : line;
}
