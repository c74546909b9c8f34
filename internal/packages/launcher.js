#!/usr/bin/env node
// Starts the program in the package of this platform, and ends as it ends.
"use strict";
const { spawn } = require("node:child_process");
const os = require("node:os");

const platform = `${process.platform}-${process.arch}`;
const name = process.platform === "win32" ? "copilot-grpc.exe" : "copilot-grpc";
let program;
try {
  program = require.resolve(`@copilot-grpc/server-${platform}/bin/${name}`);
} catch {
  console.error(
    `copilot-grpc: the package @copilot-grpc/server-${platform} is not installed.\n` +
      "Install without --omit=optional. If npm does not find it, there is no build for this platform: build from source.",
  );
  process.exit(1);
}

const child = spawn(program, process.argv.slice(2), { stdio: "inherit" });
// The program ends in order when it is asked to; this process waits for it.
for (const signal of ["SIGTERM", "SIGHUP"]) process.on(signal, () => child.kill(signal));
process.on("SIGINT", () => {
  if (!process.stdin.isTTY) child.kill("SIGINT"); // a terminal sends it to both
});
child.on("error", (error) => {
  console.error(`copilot-grpc: ${error.message}`);
  process.exit(1);
});
child.on("exit", (code, signal) => process.exit(code ?? 128 + os.constants.signals[signal]));
