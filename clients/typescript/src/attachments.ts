import type { Attachment } from "./proto.js";

/** A source of bytes: a web stream, a Node.js stream, or any other iterable of chunks. */
export type ByteSource = AsyncIterable<Uint8Array> | Iterable<Uint8Array> | ReadableStream<Uint8Array>;

/** An attachment whose bytes are read when the prompt is sent. {@link attachStream} makes one. */
export class StreamAttachment {
  readonly source: ByteSource;
  readonly mimeType: string;
  readonly displayName: string | undefined;

  /** @internal */
  constructor(source: ByteSource, mimeType: string, displayName: string | undefined) {
    this.source = source;
    this.mimeType = mimeType;
    this.displayName = displayName;
  }
}

/** An attachment of a prompt: of a helper such as {@link attachPath}, or any attachment of the CLI. */
export type PromptAttachment = Attachment | StreamAttachment;

/** A file that the server's machine has. */
export function attachPath(path: string, options: { displayName?: string } = {}): Attachment {
  return { variant: { case: "file", value: { path, displayName: options.displayName ?? baseName(path) } } };
}

/** A directory that the server's machine has. */
export function attachDirectory(path: string, options: { displayName?: string } = {}): Attachment {
  return { variant: { case: "directory", value: { path, displayName: options.displayName ?? baseName(path) } } };
}

/** Bytes, which are sent with the prompt in one message. Use {@link attachStream} above about 10 MiB. */
export function attachBytes(data: Uint8Array, options: { mimeType: string; displayName?: string }): Attachment {
  const name = options.displayName === undefined ? {} : { displayName: options.displayName };
  return { variant: { case: "blob", value: { data, mimeType: options.mimeType, ...name } } };
}

/**
 * Bytes of a stream. `Session.send` sends them in chunks, up to the server's limit of an attachment (64 MiB by
 * default). `sendAndWait`, `run` and browsers read the stream into memory, and send it within the limit of a message.
 */
export function attachStream(
  source: ByteSource,
  options: { mimeType: string; displayName?: string },
): StreamAttachment {
  return new StreamAttachment(source, options.mimeType, options.displayName);
}

/** Size of the chunks of a stream. */
const chunkBytes = 256 << 10;

/** Yields the bytes of a source in chunks of a limited size. */
export async function* chunksOf(source: ByteSource): AsyncGenerator<Uint8Array> {
  for await (const piece of iterate(source)) {
    for (let at = 0; at < piece.length; at += chunkBytes) yield piece.subarray(at, at + chunkBytes);
  }
}

/** Browsers without async iteration of ReadableStream need the reader. */
async function* iterate(source: ByteSource): AsyncGenerator<Uint8Array> {
  if (!("getReader" in source)) {
    yield* source;
    return;
  }
  const reader = source.getReader();
  try {
    for (let next = await reader.read(); !next.done; next = await reader.read()) yield next.value;
  } finally {
    await reader.cancel();
  }
}

/** The attachment with its bytes in memory. */
export async function inMemory(attachment: PromptAttachment): Promise<Attachment> {
  if (!(attachment instanceof StreamAttachment)) return attachment;
  const pieces: Uint8Array[] = [];
  for await (const piece of chunksOf(attachment.source)) pieces.push(piece);
  const data = new Uint8Array(pieces.reduce((size, piece) => size + piece.length, 0));
  let at = 0;
  for (const piece of pieces) {
    data.set(piece, at);
    at += piece.length;
  }
  const { mimeType, displayName } = attachment;
  return attachBytes(data, displayName === undefined ? { mimeType } : { mimeType, displayName });
}

function baseName(path: string): string {
  return path.split(/[/\\]/).filter(Boolean).at(-1) ?? path;
}
