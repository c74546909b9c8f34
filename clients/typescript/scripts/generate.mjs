// Generates gen/ from the protos of the repository, and gen/cli, the index of the sub-path ./cli.
// `--check` generates into a temporary folder instead and fails if the result differs from gen/.
import { execFileSync } from "node:child_process";
import { mkdtemp, readdir, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { fileURLToPath } from "node:url";

const root = resolve(import.meta.dirname, "../../..");
const gen = resolve(import.meta.dirname, "../gen");

/** Runs the package's buf with its plugin. */
async function generate(out) {
  const template = (await readFile(join(import.meta.dirname, "../buf.gen.yaml"), "utf8")).replace(
    "out: clients/typescript/gen",
    `out: ${JSON.stringify(out)}`,
  );
  const buf = fileURLToPath(import.meta.resolve("@bufbuild/buf/bin/buf"));
  const args = [buf, "generate", "--template", template];
  execFileSync(process.execPath, args, { cwd: root, stdio: ["ignore", "inherit", "inherit"] });
  const modules = (await readdir(join(out, "copilot/cli/v1"))).filter((name) => name.endsWith("_pb.js")).sort();
  const index = modules.map((name) => `export * from "./copilot/cli/v1/${name}";\n`).join("");
  await writeFile(join(out, "cli.js"), index);
  await writeFile(join(out, "cli.d.ts"), index);
}

/** Contents by path, so that two folders can be compared. */
async function contents(folder) {
  const files = new Map();
  for (const entry of await readdir(folder, { recursive: true, withFileTypes: true })) {
    if (!entry.isFile()) continue;
    const path = join(entry.parentPath, entry.name);
    files.set(path.slice(folder.length), await readFile(path, "utf8"));
  }
  return files;
}

if (process.argv.includes("--check")) {
  const fresh = await mkdtemp(join(tmpdir(), "copilot-grpc-gen-"));
  try {
    await generate(fresh);
    const [want, have] = [await contents(fresh), await contents(gen)];
    const differing = [...new Set([...want.keys(), ...have.keys()])].filter(
      (path) => want.get(path) !== have.get(path),
    );
    if (differing.length > 0) {
      console.error(`generating again changes ${differing.length} files: ${differing.slice(0, 5).join(", ")}`);
      process.exitCode = 1;
    }
  } finally {
    await rm(fresh, { recursive: true, force: true });
  }
} else {
  await generate(gen);
}
