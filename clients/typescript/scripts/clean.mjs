// Removes the folders that the arguments name.
import { rm } from "node:fs/promises";

for (const folder of process.argv.slice(2)) {
  await rm(folder, { recursive: true, force: true });
}
