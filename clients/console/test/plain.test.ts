// Tables for the pure functions: routes, numbers, texts, tools, logins.
import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { fetchMe, linkToken, logIn, LoginError, logOut, mayAct, returnPath, rightsOf } from "../src/lib/auth.js";
import { refusal } from "../src/lib/attachments.js";
import { age, bytes, cost, count, countdown, duration, plural, shortPath } from "../src/lib/format.js";
import { parseRoute, pathOf, type Route, sessionPath } from "../src/lib/router.js";
import { clip, firstLine, oneLine, output, plain, visible } from "../src/lib/text.js";
import { comparedLines, type DiffLine, diffStats, unifiedLines } from "../src/lib/diff.js";
import { changesOf, describeTool, prettyJson } from "../src/lib/tools.js";

/** Checks a function on arguments and results. */
function table<A extends unknown[], R>(name: string, run: (...values: A) => R, rows: readonly (readonly [A, R])[]): void {
  test(name, () => {
    for (const [values, want] of rows) assert.deepEqual(run(...values), want, JSON.stringify(values));
  });
}

describe("routes", () => {
  table<[string], Route>("a path has one page", parseRoute, [
    [["/"], { page: "fleet" }],
    [["/inbox/"], { page: "inbox" }],
    [["/usage"], { page: "usage" }],
    [["/sessions/s-1"], { page: "session", id: "s-1" }],
    [["/sessions/host%2Fs-1/timeline"], { page: "timeline", id: "host/s-1" }],
    [["/sessions/"], { page: "missing", path: "/sessions/" }],
    [["/sessions/%E0%A4%A"], { page: "missing", path: "/sessions/%E0%A4%A" }],
    [["/constructor"], { page: "missing", path: "/constructor" }],
  ]);
  test("the path of a session leads back to it", () => {
    for (const id of ["a", "host/s", "a b?#", "../x"])
      assert.deepEqual(parseRoute(sessionPath(id)), { page: "session", id });
    assert.equal(pathOf({ page: "timeline", id: "a/b" }), "/sessions/a%2Fb/timeline");
  });
});

describe("numbers", () => {
  const now = Date.UTC(2026, 0, 1);
  table<[number, number], string>("ages", age, [
    [[0, now], ""],
    [[now - 3_000, now], "now"],
    [[now + 3_000, now], "now"],
    [[now - 59_000, now], "59s"],
    [[now - 3_600_000, now], "1h"],
    [[now - 13 * 86_400_000, now], "13d"],
    [[now - 21 * 86_400_000, now], "3w"],
    [[now - 800 * 86_400_000, now], "2y"],
  ]);
  table<[number], string>("durations", duration, [
    [[340.4], "340 ms"],
    [[2_440], "2.4 s"],
    [[9_960], "10 s"],
    [[72_000], "1 min 12 s"],
    [[120_000], "2 min"],
    [[7_500_000], "2 h 5 min"],
  ]);
  table<[number], string>("countdowns", countdown, [
    [[-5], "0:00"],
    [[64_001], "1:05"],
    [[7_200_000], "2:00:00"],
  ]);
  table<[number], string>("counts", count, [
    [[0], "0"],
    [[999], "999"],
    [[1_234], "1.2k"],
    [[34_400], "34k"],
    [[999_900], "1.0M"],
    [[5_600_000], "5.6M"],
  ]);
  table<[number], string>("sizes", bytes, [
    [[512], "512 B"],
    [[1_536], "1.5 KiB"],
    [[12 * 1024 * 1024], "12 MiB"],
  ]);
  table<[number], string>("costs", cost, [
    [[0], "0"],
    [[0.001], "<0.01"],
    [[1.234], "1.23"],
    [[12.34], "12.3"],
  ]);
  table<[number, string], string>("plurals", plural, [
    [[1, "session"], "1 session"],
    [[2000, "session"], "2,000 sessions"],
  ]);
  table<[string], string>("paths", shortPath, [
    [["/srv/app"], "/srv/app"],
    [["/home/ann/src/app"], "…/src/app"],
  ]);
});

describe("hostile text", () => {
  table<[string], string>("invisible and reordering characters are visible", visible, [
    [["plain äöü 漢字"], "plain äöü 漢字"],
    [["a\u202eb"], "a⟦U+202E⟧b"],
    [["\u2066x\u2069"], "⟦U+2066⟧x⟦U+2069⟧"],
    [["zero\u200bwidth"], "zero⟦U+200B⟧width"],
    [["tag \u{e0041}"], "tag ⟦U+E0041⟧"],
    [["family 👩‍👩‍👧"], "family 👩‍👩‍👧"],
    [["not\u200djoined"], "not⟦U+200D⟧joined"],
  ]);
  table<[string], string>("terminal sequences are removed", plain, [
    [["\u001b[31mred\u001b[0m"], "red"],
    [["\u001b]8;;https://example.com\u0007link\u001b]8;;\u0007"], "link"],
    [["\u001b]0;title\u001b\\text"], "text"],
    [["\u001bPq#0\u001b\\after"], "after"],
    [["10%\r50%\r100%\ndone\r\n"], "100%\ndone\n"],
    [["bell\u0007 nul\u0000"], "bell� nul�"],
    [["cut \u001b["], "cut "],
  ]);
  test("output combines both", () => assert.equal(output("\u001b[1mx\u202e"), "x⟦U+202E⟧"));
  table<[string, number, number], { text: string; hidden: number }>("clips", clip, [
    [["a\nb\nc", 2, 100], { text: "a\nb", hidden: 2 }],
    [["a\nb", 2, 100], { text: "a\nb", hidden: 0 }],
    [["abcdef", 9, 4], { text: "abcd", hidden: 2 }],
    [["ab😀", 9, 3], { text: "ab", hidden: 2 }],
  ]);
  test("a line of 5 MiB is clipped without looking at it twice", () => {
    const line = "x".repeat(5 << 20);
    assert.deepEqual(clip(line, 400, 40_000), { text: line.slice(0, 40_000), hidden: line.length - 40_000 });
    assert.equal(firstLine(line).length, 120);
  });
  table<[string], string>("texts in one line", (text) => oneLine(text), [
    [[""], ""],
    [[" \n---\n"], ""],
    [["The **answer** is `snake_case`,\n\n2 * 3 - 1."], "The answer is snake_case, 2 * 3 - 1."],
    [["## Files\r\n\r\n- one\n* two\n> three\n"], "Files one two three"],
    [["| file | use |\n|---|:-:|\n| `a.go` | b |"], "file use a.go b"],
    [["```go\nx := 1\n```"], "go x := 1"],
    [["<b>no</b> \u001b[31mred\u001b[0m \u202eright"], "<b>no</b> red ⟦U+202E⟧right"],
    [["long ".repeat(10_000)], "long ".repeat(60)],
  ]);
  table<[string], string>("first lines", (text) => firstLine(text), [
    [["\n\n  hello \nworld"], "hello"],
    [[""], ""],
  ]);
});

describe("tools", () => {
  test("a call has a title and a subject", () => {
    assert.deepEqual(describeTool("bash", '{"command":"ls -1"}'), {
      icon: "terminal",
      title: "Shell",
      subject: "ls -1",
      showsArguments: false,
    });
    assert.equal(describeTool("bash", '{"command":"a\\nb"}').showsArguments, true);
    assert.equal(describeTool("get_weather", '{"city":"Paris","days":2}').subject, "Paris");
    assert.equal(describeTool("x", '{"n":1}').subject, "1");
    assert.deepEqual(describeTool("edit", '{"path":"/a'), { icon: "edit", title: "Edit", subject: "", showsArguments: true });
    assert.equal(describeTool("", "").title, "Tool");
  });
  table<[string], string>("pretty JSON", prettyJson, [
    [['{"a":[1]}'], '{\n  "a": [\n    1\n  ]\n}'],
    [['{"a":'], '{"a":'],
  ]);
});

/** A fetch that answers with a status and a body. */
function answering(status: number, body: unknown): { fetch: typeof globalThis.fetch; asked: string[] } {
  const asked: string[] = [];
  const fetch = (input: RequestInfo | URL, init?: RequestInit) => {
    asked.push(`${init?.method ?? "GET"} ${String(input)} ${String(init?.body ?? "")}`.trim());
    return Promise.resolve(new Response(typeof body === "string" ? body : JSON.stringify(body), { status }));
  };
  return { fetch, asked };
}

describe("logins", () => {
  const ann = { name: "ann", tenant: "t", role: "observer", expires: "", method: "link" } as const;
  test("the caller is in or out", async () => {
    assert.deepEqual(await fetchMe(answering(200, ann).fetch), { state: "in", identity: ann });
    assert.deepEqual(await fetchMe(answering(401, { methods: ["token"] }).fetch), { state: "out", methods: ["token"] });
    await assert.rejects(fetchMe(answering(503, "busy").fetch), /status 503/);
  });
  test("a refused login has the server's text", async () => {
    const good = answering(200, {});
    await logIn("link", "abc", good.fetch);
    assert.deepEqual(good.asked, ['POST /auth/link {"token":"abc"}']);
    const refused = logIn("token", "x", answering(401, { code: "unauthenticated", message: "wrong token" }).fetch);
    await assert.rejects(refused, new LoginError("wrong token"));
    await assert.rejects(logIn("token", "x", answering(502, "<html>").fetch), /status 502/);
  });
  table<[string], string>("the page after a login is of this console", returnPath, [
    [[""], "/"],
    [["?return=/inbox"], "/inbox"],
    [["?return=//evil.example"], "/"],
    [["?return=/\\evil.example"], "/"],
    [["?return=https://evil.example"], "/"],
    [["?return=/login"], "/"],
  ]);
  test("a logout leads to the issuer's page, if it has one", async () => {
    const page = "https://issuer.example/logout";
    assert.equal(await logOut(answering(200, { redirect: page }).fetch), page);
    assert.equal(await logOut(answering(200, {}).fetch), "");
    assert.equal(await logOut(answering(200, { redirect: "javascript:alert(1)" }).fetch), "");
    assert.equal(await logOut(answering(401, { message: "no login" }).fetch), "");
    await assert.rejects(logOut(answering(500, { message: "the disk is full" }).fetch), new LoginError("the disk is full"));
  });
  test("rights in sessions, also of other tenants", () => {
    const [reads, takesPart] = [{ owner: "host", access: 1 }, { owner: "host", access: 2 }];
    const [none, act] = [{ acts: false, closes: false, owns: false }, { acts: true, closes: false, owns: false }];
    const owner = { ...ann, role: "owner" } as const;
    assert.deepEqual(rightsOf(ann, undefined), none);
    assert.deepEqual(rightsOf({ ...ann, role: "participant" }, undefined), { ...act, closes: true });
    assert.deepEqual(rightsOf(owner, { owner: "", access: 0 }), { acts: true, closes: true, owns: true });
    assert.deepEqual(rightsOf(owner, reads), none);
    assert.deepEqual(rightsOf(owner, takesPart), act);
    assert.deepEqual(rightsOf(ann, takesPart), none);
  });
  test("tokens and roles", () => {
    assert.equal(linkToken("#abc"), "abc");
    assert.equal(linkToken(""), "");
    assert.equal(mayAct(ann), false);
    assert.equal(mayAct({ ...ann, role: "participant" }), true);
    assert.equal(mayAct(undefined), false);
  });
});

describe("attachments", () => {
  const file = (name: string, size: number) => ({ name, size }) as File;
  table<[File[], File[]], string>(
    "files fit one by one and together",
    (files, added) => refusal(files, added, { each: 1000, all: 1500 }),
    [
      [[[], [file("a", 1000)]], ""],
      [[[], [file("a", 1001)]], "a has 1001 B. The server takes at most 1000 B."],
      [[[file("a", 1000)], [file("b", 500)]], ""],
      [[[file("a", 1000)], [file("b", 501)]], "The files have 1.5 KiB. A prompt takes at most 1.5 KiB."],
    ],
  );
});

describe("diffs", () => {
  const text = (lines: readonly DiffLine[]) =>
    lines.map(({ kind, text, before, after }) => `${kind} ${before ?? ""}/${after ?? ""} ${text}`);
  test("a unified diff has line numbers", () => {
    const patch = "--- a/x\n+++ b/x\n@@ -1,3 +1,3 @@\n one\n-two\n+2\n three\n@@ -9,1 +9,2 @@\n nine\n+ten\n";
    assert.deepEqual(text(unifiedLines(patch)), [
      "same 1/1 one",
      "del 2/ two",
      "add /2 2",
      "same 3/3 three",
      "hunk / ⋯",
      "same 9/9 nine",
      "add /10 ten",
    ]);
    assert.deepEqual(text(unifiedLines("no diff")), ["same / no diff"]);
    assert.deepEqual(text(unifiedLines("@@ -1,9 +1,9 @@\nbroken")), ["same / @@ -1,9 +1,9 @@", "same / broken"]);
  });
  test("two texts are compared with a few lines around", () => {
    const before = Array.from({ length: 20 }, (_, n) => `line ${n + 1}`).join("\n");
    const lines = comparedLines(before, before.replace("line 10", "LINE 10"), 1);
    assert.deepEqual(text(lines), [
      "hunk / ⋯",
      "same 9/9 line 9",
      "del 10/ line 10",
      "add /10 LINE 10",
      "same 11/11 line 11",
      "hunk / ⋯",
    ]);
    assert.deepEqual(diffStats(lines), { added: 1, removed: 1 });
    assert.match(comparedLines("x".repeat(400_000), "y")[0]?.text ?? "", /too large/);
  });
  test("the change of a call", () => {
    const kinds = (name: string, json: object, detail = "") => changesOf(name, JSON.stringify(json), detail).map(({ kind }) => kind);
    assert.deepEqual(kinds("edit", { path: "a", old_str: "x", new_str: "y" }), ["del", "add"]);
    assert.deepEqual(kinds("create", { path: "a", file_text: "x\ny\n" }), ["add", "add"]);
    assert.deepEqual(kinds("edit", {}, "--- a\n+++ b\n@@ -1 +1 @@\n-x\n+y"), ["del", "add"]);
    assert.deepEqual(kinds("apply_patch", { patch: "*** Update File: a\n@@\n-x\n+y" }), ["hunk", "hunk", "del", "add"]);
    assert.deepEqual(kinds("bash", { command: "ls" }), []);
  });
});
