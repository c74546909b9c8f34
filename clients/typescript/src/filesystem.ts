import type { HandlerTable } from "./handlers.js";
import { errorText } from "./logger.js";
import type { RuntimeProfile } from "./proto.js";

/** A file's attributes. */
export interface FileStat {
  isFile: boolean;
  isDirectory: boolean;
  size: number;
  modifiedAt: Date;
}

/**
 * A file system with absolute paths and slashes. Methods throw an error with the code "ENOENT" for a missing file, as
 * Node.js does.
 */
export interface FileSystem {
  /** Returns a file's content. */
  readFile(path: string): Promise<Uint8Array>;
  /** Replaces a file's content. Does not create directories. */
  writeFile(path: string, data: Uint8Array, mode?: number): Promise<void>;
  /** Appends to a file, and creates it and its directories. */
  appendFile(path: string, data: Uint8Array, mode?: number): Promise<void>;
  /** Returns the attributes of a file or a directory. */
  stat(path: string): Promise<FileStat>;
  /** Creates a directory; `recursive` also creates its parents, and accepts an existing directory. */
  mkdir(path: string, recursive: boolean, mode?: number): Promise<void>;
  /** Lists a directory. */
  readdir(path: string): Promise<{ name: string; isDirectory: boolean }[]>;
  /** Moves a file or a directory. A file at `to` is replaced. */
  rename(from: string, to: string): Promise<void>;
  /** Removes a file; `recursive` removes a directory with its content. */
  rm(path: string, recursive: boolean): Promise<void>;
}

/** A session's file system, with its settings. {@link provideFiles} makes one. */
export interface FileSystemProvider {
  readonly files: FileSystem;
  readonly declaration: NonNullable<RuntimeProfile["sessionFs"]>;
}

/**
 * Provides the files of a session from this program. The session works only while a participant with the file system is
 * attached. The session has no SQLite database; `handlers` can add one with the kinds `fsSqlite…`.
 */
export function provideFiles(
  files: FileSystem,
  options: { initialDirectory?: string; statePath?: string; key?: string; sqlite?: boolean } = {},
): FileSystemProvider {
  const { initialDirectory = "/", statePath = "/session-state", key = "", sqlite = false } = options;
  return { files, declaration: { initialDirectory, statePath, key, sqlite, binary: true } };
}

const decoder = new TextDecoder();
const encoder = new TextEncoder();

/** Values of SessionFsErrorCode and SessionFsReaddirWithTypesEntryType. */
const ErrorCode = { ENOENT: 1, UNKNOWN: 2 } as const;
const EntryType = { file: 1, directory: 2 } as const;

function fsError(error: unknown) {
  const missing = (error as { code?: unknown } | undefined)?.code === "ENOENT";
  return { code: missing ? ErrorCode.ENOENT : ErrorCode.UNKNOWN, message: errorText(error) };
}

/** Runs an operation; its error is a part of the answer. */
async function attempt<T extends object, E extends object>(
  run: () => Promise<T>,
  failed: (error: ReturnType<typeof fsError>) => E,
): Promise<T | E> {
  try {
    return await run();
  } catch (error) {
    return failed(fsError(error));
  }
}

/** Adds the handlers of a file system. */
export function registerFiles(handlers: HandlerTable, { files }: FileSystemProvider): void {
  registerReads(handlers, files);
  registerWrites(handlers, files);
}

function registerReads(handlers: HandlerTable, files: FileSystem): void {
  const never = { seconds: 0n };
  handlers.add("fsReadFile", ({ path }) =>
    attempt(
      async () => ({ content: decoder.decode(await files.readFile(path)) }),
      (error) => ({ content: "", error }),
    ),
  );
  handlers.add("fsReadFileBytes", ({ path }) =>
    attempt(
      async () => ({ content: toBase64(await files.readFile(path)) }),
      (error) => ({ content: "", error }),
    ),
  );
  handlers.add("fsExists", async ({ path }) => {
    const found = await attempt(
      () => files.stat(path),
      (error) => ({ error }),
    );
    if ("error" in found && found.error.code !== ErrorCode.ENOENT) throw new Error(found.error.message);
    return { exists: !("error" in found) };
  });
  handlers.add("fsStat", ({ path }) =>
    attempt(
      async () => {
        const { modifiedAt, size, isFile, isDirectory } = await files.stat(path);
        const at = { seconds: BigInt(Math.floor(modifiedAt.getTime() / 1000)) };
        return { isFile, isDirectory, size: BigInt(size), mtime: at, birthtime: at };
      },
      (error) => ({ mtime: never, birthtime: never, error }), // the CLI requires the times also with an error
    ),
  );
  handlers.add("fsReaddir", ({ path }) =>
    attempt(
      async () => ({ entries: (await files.readdir(path)).map((entry) => entry.name) }),
      (error) => ({ error }),
    ),
  );
  handlers.add("fsReaddirWithTypes", ({ path }) =>
    attempt(
      async () => {
        const entries = await files.readdir(path);
        return {
          entries: entries.map(({ name, isDirectory }) => ({
            name,
            entryType: isDirectory ? EntryType.directory : EntryType.file,
          })),
        };
      },
      (error) => ({ error }),
    ),
  );
}

function registerWrites(handlers: HandlerTable, files: FileSystem): void {
  const write = (run: () => Promise<void>) =>
    attempt(
      async () => {
        await run();
        return {};
      },
      (value) => ({ value }),
    );
  const modeOf = (mode: bigint | undefined) => (mode === undefined ? undefined : Number(mode));
  handlers.add("fsWriteFile", ({ path, content, mode }) =>
    write(() => files.writeFile(path, encoder.encode(content), modeOf(mode))),
  );
  handlers.add("fsWriteFileBytes", ({ path, content, mode }) =>
    write(() => files.writeFile(path, fromBase64(content), modeOf(mode))),
  );
  handlers.add("fsAppendFile", ({ path, content, mode }) =>
    write(() => files.appendFile(path, encoder.encode(content), modeOf(mode))),
  );
  handlers.add("fsMkdir", ({ path, recursive, mode }) =>
    write(() => files.mkdir(path, recursive ?? false, modeOf(mode))),
  );
  handlers.add("fsRename", ({ src, dest }) => write(() => files.rename(src, dest)));
  handlers.add("fsRm", ({ path, recursive, force }) =>
    write(async () => {
      try {
        await files.rm(path, recursive ?? false);
      } catch (error) {
        if (!force || fsError(error).code !== ErrorCode.ENOENT) throw error;
      }
    }),
  );
}

function toBase64(data: Uint8Array): string {
  let text = "";
  for (let at = 0; at < data.length; at += 0x8000) text += String.fromCharCode(...data.subarray(at, at + 0x8000));
  return btoa(text);
}

function fromBase64(text: string): Uint8Array {
  return Uint8Array.from(atob(text), (char) => char.charCodeAt(0));
}
