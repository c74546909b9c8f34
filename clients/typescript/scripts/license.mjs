// Copies the license of the repository into the package.
import { copyFile } from "node:fs/promises";
import { join } from "node:path";

await copyFile(join(import.meta.dirname, "../../../LICENSE"), join(import.meta.dirname, "../LICENSE"));
