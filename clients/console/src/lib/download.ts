import type { Client } from "@copilot-grpc/client";

/** Saves the archive of a session as a file of the browser's. Nothing is saved if the archive was cut off. */
export async function downloadArchive(client: Client, sessionId: string): Promise<void> {
  const chunks: BlobPart[] = [];
  for await (const chunk of client.exportSession(sessionId)) chunks.push(chunk as Uint8Array<ArrayBuffer>);
  const url = URL.createObjectURL(new Blob(chunks, { type: "application/gzip" }));
  const link = document.createElement("a");
  link.href = url;
  link.download = `${sessionId}.tar.gz`;
  link.click();
  setTimeout(() => URL.revokeObjectURL(url), 60_000); // the browser has read it by then
}
