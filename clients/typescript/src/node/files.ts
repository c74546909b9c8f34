import { createReadStream } from "node:fs";
import * as fs from "node:fs/promises";
import { basename, dirname, join, normalize } from "node:path";
import { attachStream, type StreamAttachment } from "../attachments.js";
import type { FileStat, FileSystem } from "../filesystem.js";

/**
 * A file of this machine as an attachment. Its bytes are sent when the prompt is sent. Throws if the file does not
 * exist.
 */
export async function attachFile(
  path: string,
  options: { mimeType?: string; displayName?: string } = {},
): Promise<StreamAttachment> {
  await fs.access(path, fs.constants.R_OK);
  const { mimeType = mimeTypes[/\.[^.]+$/.exec(path)?.[0].toLowerCase() ?? ""] ?? "application/octet-stream" } =
    options;
  const source: AsyncIterable<Uint8Array> = {
    [Symbol.asyncIterator]: () => createReadStream(path)[Symbol.asyncIterator](),
  };
  return attachStream(source, { mimeType, displayName: options.displayName ?? basename(path) });
}

const mimeTypes: Record<string, string> = {
  ".csv": "text/csv",
  ".gif": "image/gif",
  ".html": "text/html",
  ".jpeg": "image/jpeg",
  ".jpg": "image/jpeg",
  ".json": "application/json",
  ".md": "text/markdown",
  ".pdf": "application/pdf",
  ".png": "image/png",
  ".svg": "image/svg+xml",
  ".txt": "text/plain",
  ".webp": "image/webp",
};

/** A token of a file that rotates. The file is read again when it has changed. Surrounding white space is ignored. */
export function tokenFromFile(path: string): () => Promise<string> {
  let [version, token] = ["", ""];
  return async () => {
    const { mtimeMs, size, ino } = await fs.stat(path);
    const current = `${mtimeMs}/${size}/${ino}`;
    if (current !== version) {
      token = (await fs.readFile(path, "utf8")).trim();
      version = current;
    }
    return token;
  };
}

/** A directory of this machine as the file system of a session. Paths do not leave it; symbolic links can. */
export class DirectoryFileSystem implements FileSystem {
  readonly #root: string;

  constructor(root: string) {
    this.#root = root;
  }

  #path(path: string): string {
    return join(this.#root, normalize(`/${path}`));
  }

  readFile(path: string): Promise<Uint8Array> {
    return fs.readFile(this.#path(path));
  }

  async writeFile(path: string, data: Uint8Array, mode?: number): Promise<void> {
    await fs.writeFile(this.#path(path), data, { mode: mode ?? 0o600 });
  }

  async appendFile(path: string, data: Uint8Array, mode?: number): Promise<void> {
    await fs.mkdir(dirname(this.#path(path)), { recursive: true, mode: 0o700 });
    await fs.appendFile(this.#path(path), data, { mode: mode ?? 0o600 });
  }

  async stat(path: string): Promise<FileStat> {
    const found = await fs.stat(this.#path(path));
    return { isFile: found.isFile(), isDirectory: found.isDirectory(), size: found.size, modifiedAt: found.mtime };
  }

  async mkdir(path: string, recursive: boolean, mode?: number): Promise<void> {
    await fs.mkdir(this.#path(path), { recursive, mode: mode ?? 0o700 });
  }

  async readdir(path: string): Promise<{ name: string; isDirectory: boolean }[]> {
    const entries = await fs.readdir(this.#path(path), { withFileTypes: true });
    return entries.map((entry) => ({ name: entry.name, isDirectory: entry.isDirectory() }));
  }

  async rename(from: string, to: string): Promise<void> {
    await fs.rename(this.#path(from), this.#path(to));
  }

  async rm(path: string, recursive: boolean): Promise<void> {
    await fs.rm(this.#path(path), { recursive });
  }
}
