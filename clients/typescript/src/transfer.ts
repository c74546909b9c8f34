import { Code } from "@connectrpc/connect";
import { type ByteSource, chunksOf } from "./attachments.js";
import { CopilotError } from "./errors.js";
import { defined } from "./options.js";
import type { ExportSessionResponse, SessionConfig } from "./proto.js";

/** How to import an archive. */
export interface ImportOptions {
  /** The id of the new session; default: the id of the exported one. */
  sessionId?: string;
  /** Replaces the configuration in the archive as a whole. */
  config?: SessionConfig;
  /** Name of a model provider of the server; replaces the one in the archive. */
  providerRef?: string;
  signal?: AbortSignal;
}

/** Yields the content of an archive, and throws DATA_LOSS if it was cut off. */
export async function* archiveOf(stream: AsyncIterable<ExportSessionResponse>): AsyncGenerator<Uint8Array> {
  let left: bigint | undefined;
  for await (const { piece } of stream) {
    if (piece.case === "header") left = piece.value.sizeBytes;
    if (piece.case !== "chunk") continue;
    left = (left ?? 0n) - BigInt(piece.value.length);
    yield piece.value;
  }
  if (left !== 0n) throw new CopilotError({ code: Code.DataLoss, message: "the archive was cut off" });
}

/** The messages of an import. `failed` receives an error of the archive's source. */
export async function* importPieces(
  archive: ByteSource,
  header: Omit<ImportOptions, "signal">,
  failed: (error: unknown) => void,
) {
  yield { piece: { case: "header" as const, value: defined(header) } };
  try {
    for await (const chunk of chunksOf(archive)) yield { piece: { case: "chunk" as const, value: chunk } };
  } catch (error) {
    failed(error);
    throw error;
  }
}
