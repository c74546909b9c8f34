import { diffLines, parsePatch } from "diff";

/** A line of a diff. */
export interface DiffLine {
  readonly kind: "add" | "del" | "same" | "hunk" | "note";
  readonly text: string;
  /** Line numbers in the old and the new file. */
  readonly before?: number;
  readonly after?: number;
}

/** Texts above this size are not compared: it would block the page. */
const maxChars = 400_000;

/** The lines of a unified diff. A text that is none is shown as it is. */
export function unifiedLines(patch: string): DiffLine[] {
  let files: ReturnType<typeof parsePatch>;
  try {
    files = parsePatch(patch.slice(0, maxChars));
  } catch {
    files = [];
  }
  const lines: DiffLine[] = [];
  for (const { hunks } of files) {
    for (const hunk of hunks) {
      if (lines.length > 0) lines.push({ kind: "hunk", text: "⋯" });
      let [before, after] = [hunk.oldStart, hunk.newStart];
      for (const line of hunk.lines) {
        const text = line.slice(1);
        if (line.startsWith("+")) lines.push({ kind: "add", text, after: after++ });
        else if (line.startsWith("-")) lines.push({ kind: "del", text, before: before++ });
        else if (line.startsWith("\\")) lines.push({ kind: "note", text: line.slice(2) });
        else lines.push({ kind: "same", text, before: before++, after: after++ });
      }
    }
  }
  return lines.length > 0 ? lines : patch.split("\n").map((text) => ({ kind: "same", text }));
}

/** The lines of two texts, with a few equal lines around each change. */
export function comparedLines(before: string, after: string, context = 3): DiffLine[] {
  if (before.length + after.length > maxChars) return [{ kind: "note", text: "The texts are too large to compare." }];
  const lines: DiffLine[] = [];
  let [old, now] = [1, 1];
  const changes = diffLines(before, after);
  for (const [at, { added, removed, value }] of changes.entries()) {
    const texts = value.replace(/\n$/, "").split("\n");
    if (added) for (const text of texts) lines.push({ kind: "add", text, after: now++ });
    else if (removed) for (const text of texts) lines.push({ kind: "del", text, before: old++ });
    else {
      const head = at === 0 ? 0 : context;
      const tail = at === changes.length - 1 ? 0 : context;
      for (const [n, text] of texts.entries()) {
        const near = n < head || n >= texts.length - tail;
        if (near) lines.push({ kind: "same", text, before: old, after: now });
        else if (n === head) lines.push({ kind: "hunk", text: "⋯" });
        old++;
        now++;
      }
    }
  }
  return lines;
}

/** The lines of a patch in the form that models write: without line numbers. */
export function patchLines(patch: string): DiffLine[] {
  const lines: DiffLine[] = [];
  for (const line of patch.slice(0, maxChars).split("\n")) {
    if (line.startsWith("+")) lines.push({ kind: "add", text: line.slice(1) });
    else if (line.startsWith("-")) lines.push({ kind: "del", text: line.slice(1) });
    else if (line.startsWith("@@") || line.startsWith("***")) lines.push({ kind: "hunk", text: line.replace(/^[@*]+ ?/, "") });
    else lines.push({ kind: "same", text: line.slice(1) });
  }
  return lines;
}

export function diffStats(lines: readonly DiffLine[]): { added: number; removed: number } {
  let [added, removed] = [0, 0];
  for (const { kind } of lines) {
    if (kind === "add") added++;
    if (kind === "del") removed++;
  }
  return { added, removed };
}
