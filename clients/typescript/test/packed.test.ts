// The package as it would be published: packed, installed from the file into an empty project, and used there. The
// programs are the README's.
import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { mkdir, mkdtemp, readdir, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { promisify } from "node:util";
import type { TestServer } from "@copilot-grpc/client/testing";
import { binary, exampleModel, packageRoot, repositoryRoot, startServer } from "./fixture.js";

const run = promisify(execFile);
let project: string;
let server: TestServer;

before(async () => {
  project = await mkdtemp(join(tmpdir(), "packed-"));
  const [started] = await Promise.all([startServer({ model: exampleModel }), install()]);
  server = started;
});
after(async () => {
  await server.close();
  await rm(project, { recursive: true });
});

/** Packs the package without building it again, and installs it. */
async function install(): Promise<void> {
  await run(process.execPath, ["scripts/license.mjs"], { cwd: packageRoot });
  const packed = await run("npm", ["pack", "--ignore-scripts", "--json", "--pack-destination", project], {
    cwd: packageRoot,
  });
  const [{ filename }] = JSON.parse(packed.stdout) as [{ filename: string }];
  const { devDependencies } = JSON.parse(await readFile(join(packageRoot, "package.json"), "utf8")) as {
    devDependencies: Record<string, string>;
  };
  await writeFile(join(project, "package.json"), JSON.stringify({ private: true, type: "module" }));
  const others = ["zod", "@types/node"].map((name) => `${name}@${devDependencies[name]}`);
  const flags = ["--prefer-offline", "--no-audit", "--no-fund", "--ignore-scripts", "--loglevel=error"];
  await run("npm", ["install", ...flags, join(project, filename), ...others], { cwd: project });
}

/** The programs of the README, with their output. */
async function readmePrograms(): Promise<{ program: string; output: string }[]> {
  const readme = await readFile(join(packageRoot, "README.md"), "utf8");
  return [...readme.matchAll(/<!-- run -->\n```ts\n(.*?)```\n```text\n(.*?)```/gs)].map(
    ([, program = "", output = ""]) => ({
      program,
      output,
    }),
  );
}

/** What the snippets of the README use without declaring it. */
const prelude = `
import { answerPermission, attachBytes, attachFile, attachPath, connect, formatPosition, isGap, isReason, permissionRules, reject, tokenFromFile }
  from "@copilot-grpc/client/node";
import type { Client, Session } from "@copilot-grpc/client/node";
declare const client: Client, session: Session;
declare const id: string, ca: Buffer, cert: Buffer, key: Buffer, png: Uint8Array;
`;
const declarations = `
declare module "@opentelemetry/api" {
  export const context: { with<T>(context: unknown, run: () => T): T; active(): unknown };
  export const propagation: { extract(context: unknown, carrier: object): unknown };
}
declare function readToken(): string;
`;

/** What surrounds the snippet of docs/clients.md. */
const archivePrelude = `
import { createReadStream, createWriteStream } from "node:fs";
import { pipeline } from "node:stream/promises";
import { connect } from "@copilot-grpc/client/node";
await using client = await connect();
await using other = await connect();
await using session = await client.createSession();
await session.sendAndWait("first");
const sessionId = session.id;
`;

/** The snippet of docs/clients.md as a program. */
async function archiveProgram(): Promise<string> {
  const guide = await readFile(join(repositoryRoot, "docs/clients.md"), "utf8");
  const [, snippet] = /<!-- run: archive -->\n```ts\n(.*?)```/s.exec(guide) ?? [];
  assert.ok(snippet);
  return `${archivePrelude}${snippet}\nconsole.log(made.originSessionId === sessionId, made.session?.sessionId);\n`;
}

/** Writes the other snippets of the README as modules that compile. */
async function writeSnippets(folder: string): Promise<number> {
  const readme = await readFile(join(packageRoot, "README.md"), "utf8");
  const snippets = [...readme.matchAll(/(?<!<!-- run -->\n)```ts\n(.*?)```/gs)].map(([, snippet = ""]) => snippet);
  await writeFile(join(folder, "ambient.d.ts"), declarations);
  for (const [index, snippet] of snippets.entries()) {
    const text = /import .*client\/web/.test(snippet) ? `export {};\n${snippet}` : `${prelude}${snippet}`;
    await writeFile(join(folder, `snippet${index}.ts`), text);
  }
  return snippets.length;
}

/** Compiles the programs of the project with its own settings. */
async function compile(): Promise<void> {
  const options = {
    ...{ target: "es2022", module: "nodenext", lib: ["es2023", "esnext.disposable", "dom"], types: ["node"] },
    ...{
      strict: true,
      exactOptionalPropertyTypes: true,
      noUncheckedIndexedAccess: true,
      outDir: "out",
      rootDir: "src",
    },
  };
  await writeFile(join(project, "tsconfig.json"), JSON.stringify({ compilerOptions: options, include: ["src"] }));
  const tsc = join(packageRoot, "node_modules/typescript/bin/tsc");
  await run(process.execPath, [tsc, "-p", project]).catch((error: { stdout: string }) => assert.fail(error.stdout));
}

test("the README's snippets compile, and the programs of README and guide print what they say", async () => {
  const programs = await readmePrograms();
  assert.ok(programs.length >= 3);
  programs.push({ program: await archiveProgram(), output: "true copy\n" });
  await mkdir(join(project, "src"), { recursive: true });
  for (const [index, { program }] of programs.entries())
    await writeFile(join(project, "src", `readme${index}.ts`), program);
  assert.ok((await writeSnippets(join(project, "src"))) >= 8);
  await compile();
  const env = { ...process.env, COPILOT_GRPC_TARGET: server.target, COPILOT_GRPC_BINARY: binary };
  const printed = await Promise.all(
    programs.map((_, index) => run(process.execPath, [`out/readme${index}.js`], { cwd: project, env })),
  );
  assert.deepEqual(
    printed.map(({ stdout }) => stdout),
    programs.map(({ output }) => output),
  );
  await using failing = await startServer({ model: { rules: [] } });
  const first = run(process.execPath, ["out/readme0.js"], {
    cwd: project,
    env: { ...env, COPILOT_GRPC_TARGET: failing.target },
  });
  await assert.rejects(first, /OutcomeError: the turn ended as failed/);
});

test("every sub-path of the package can be imported", async () => {
  const { exports } = JSON.parse(await readFile(join(packageRoot, "package.json"), "utf8")) as {
    exports: Record<string, unknown>;
  };
  const paths = Object.keys(exports).filter((path) => !path.includes("*") && !path.endsWith(".json"));
  const program = [...paths, "./gen/copilot/bridge/v1/session_pb"]
    .map((path) => `console.log(Object.keys(await import("@copilot-grpc/client${path.slice(1)}")).length > 0);\n`)
    .join("");
  await writeFile(join(project, "imports.js"), program);
  const { stdout } = await run(process.execPath, ["imports.js"], { cwd: project });
  assert.equal(stdout, "true\n".repeat(paths.length + 1));
});

test("the root and the web entry run in browsers: no module of Node.js", async () => {
  const installed = join(project, "node_modules/@copilot-grpc/client");
  for (const entry of ["dist/index.js", "dist/web/index.js"]) {
    const [modules, foreign] = await closure(installed, entry);
    assert.ok(modules.size > 20);
    assert.deepEqual(
      [...foreign].filter((name) => name.startsWith("node:") || name.includes("connect-node")),
      [],
    );
  }
});

/** The modules of the package that an entry imports, and the other packages' names. */
async function closure(root: string, entry: string): Promise<[Set<string>, Set<string>]> {
  const [modules, foreign] = [new Set([entry]), new Set<string>()];
  for (const module of modules) {
    const text = await readFile(join(root, module), "utf8");
    for (const [, name = ""] of text.matchAll(/(?:from|import) "([^"]+)"/g)) {
      if (name.startsWith("#gen/")) modules.add(name.slice(1));
      else if (name.startsWith(".")) modules.add(join(module, "..", name));
      else foreign.add(name);
    }
  }
  return [modules, foreign];
}

test("the lock file and the package have no registry and no files of this machine", async () => {
  const lock = await readFile(join(packageRoot, "package-lock.json"), "utf8");
  const urls = lock.split("\n").filter((line) => /"resolved"|registry/.test(line));
  assert.deepEqual(urls, []);
  const names = await readdir(join(project, "node_modules/@copilot-grpc/client"), { recursive: true });
  assert.ok(names.includes("README.md") && names.includes("LICENSE"));
  assert.deepEqual(
    names.filter((name) => /(^|\/)(src|test|build|scripts|examples)(\/|$)/.test(name)),
    [],
  );
});
