import { comparedLines, type DiffLine, patchLines, unifiedLines } from "./diff.js";

/** How a call of a tool is shown in one line. */
export interface ToolCard {
  readonly icon: "terminal" | "edit" | "eye" | "search" | "globe" | "agent" | "tool" | "file" | "info";
  readonly title: string;
  /** The command, the path, the query. */
  readonly subject: string;
  /** The arguments say more than the subject. */
  readonly showsArguments: boolean;
}

type Arguments = Readonly<Record<string, unknown>>;

interface Known {
  readonly icon: ToolCard["icon"];
  readonly title: string;
  /** The arguments that are the subject, the first that is there. */
  readonly subjects: readonly string[];
}

const known: Readonly<Record<string, Known>> = {
  bash: { icon: "terminal", title: "Shell", subjects: ["command"] },
  shell: { icon: "terminal", title: "Shell", subjects: ["command"] },
  powershell: { icon: "terminal", title: "PowerShell", subjects: ["command"] },
  read_bash: { icon: "terminal", title: "Read shell", subjects: ["shellId", "sessionId"] },
  write_bash: { icon: "terminal", title: "Write to shell", subjects: ["input", "shellId"] },
  stop_bash: { icon: "terminal", title: "Stop shell", subjects: ["shellId", "sessionId"] },
  view: { icon: "eye", title: "Read", subjects: ["path"] },
  create: { icon: "file", title: "Create", subjects: ["path"] },
  edit: { icon: "edit", title: "Edit", subjects: ["path"] },
  str_replace: { icon: "edit", title: "Edit", subjects: ["path"] },
  str_replace_editor: { icon: "edit", title: "Edit", subjects: ["path", "command"] },
  apply_patch: { icon: "edit", title: "Patch", subjects: ["path"] },
  grep: { icon: "search", title: "Search", subjects: ["pattern"] },
  rg: { icon: "search", title: "Search", subjects: ["pattern"] },
  glob: { icon: "search", title: "Find files", subjects: ["pattern"] },
  web_fetch: { icon: "globe", title: "Fetch", subjects: ["url"] },
  web_search: { icon: "globe", title: "Search the web", subjects: ["query"] },
  ask_user: { icon: "info", title: "Question", subjects: ["question"] },
  exit_plan_mode: { icon: "info", title: "Plan", subjects: ["summary"] },
  report_intent: { icon: "info", title: "Intent", subjects: ["intent"] },
  update_todo: { icon: "file", title: "To-dos", subjects: [] },
  store_memory: { icon: "file", title: "Memory", subjects: ["fact", "subject"] },
  task: { icon: "agent", title: "Sub-agent", subjects: ["description", "agent_type", "prompt"] },
};

export function describeTool(name: string, argumentsJson: string): ToolCard {
  const values = parseArguments(argumentsJson);
  const entry = known[name] ?? { icon: "tool" as const, title: name || "Tool", subjects: Object.keys(values) };
  const keys = Object.keys(values);
  for (const key of entry.subjects) {
    const value = values[key];
    if (value === undefined || value === "") continue;
    const subject = typeof value === "string" ? value : JSON.stringify(value);
    const one = keys.length === 1 && typeof value === "string" && value.length <= 100 && !value.includes("\n");
    return { icon: entry.icon, title: entry.title, subject: subject.slice(0, 300), showsArguments: !one };
  }
  return { icon: entry.icon, title: entry.title, subject: "", showsArguments: keys.length > 0 || argumentsJson !== "" };
}

/** The change of a file by a call, if the call is one. */
export function changesOf(name: string, argumentsJson: string, detail: string): readonly DiffLine[] {
  if (/^(diff --git |--- )/m.test(detail) && /^@@ /m.test(detail)) return unifiedLines(detail);
  const values = parseArguments(argumentsJson);
  const text = (key: string): string | undefined => (typeof values[key] === "string" ? values[key] : undefined);
  const [before, after] = [text("old_str"), text("new_str")];
  if (before !== undefined && after !== undefined) return comparedLines(before, after);
  const content = text("file_text");
  if (name === "create" && content !== undefined) return comparedLines("", content);
  const patch = text("patch") ?? text("input");
  return name === "apply_patch" && patch ? patchLines(patch) : [];
}

/** The arguments as an object; those that are incomplete or of another kind are empty. */
export function parseArguments(json: string): Arguments {
  if (!json.startsWith("{")) return {};
  try {
    return JSON.parse(json) as Arguments;
  } catch {
    return {};
  }
}

/** JSON with indentation; other text unchanged. */
export function prettyJson(json: string): string {
  if (json.length > 1_000_000) return json;
  try {
    return JSON.stringify(JSON.parse(json), null, 2);
  } catch {
    return json;
  }
}
