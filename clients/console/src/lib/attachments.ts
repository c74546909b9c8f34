import { attachBytes, type Client, type PromptAttachment } from "@copilot-grpc/client";
import { bytes } from "./format.js";

/** What the server takes with one prompt, in bytes. */
export interface AttachmentLimits {
  /** Of one attachment. */
  readonly each: number;
  /** Of all attachments together: browsers send them in one message. */
  readonly all: number;
}

/** Room of a message for all that is not an attachment or the text. */
const overheadBytes = 16 << 10;

export async function attachmentLimits(client: Client): Promise<AttachmentLimits> {
  const { limits } = await client.serverInfo();
  const [request, prompt] = [Number(limits?.maxRequestBytes ?? 0n), Number(limits?.maxPromptBytes ?? 0n)];
  const all = Math.max(0, request - prompt - overheadBytes);
  return { each: Math.min(all, Number(limits?.maxAttachmentBytes ?? 0n)), all };
}

/** The reason why files cannot be added to those of a prompt; empty if they can. */
export function refusal(files: readonly File[], added: readonly File[], limits: AttachmentLimits): string {
  const large = added.find(({ size }) => size > limits.each);
  if (large) return `${large.name} has ${bytes(large.size)}. The server takes at most ${bytes(limits.each)}.`;
  const sum = [...files, ...added].reduce((total, { size }) => total + size, 0);
  return sum > limits.all ? `The files have ${bytes(sum)}. A prompt takes at most ${bytes(limits.all)}.` : "";
}

/** Reads files into attachments. */
export function attachmentsOf(files: readonly File[]): Promise<PromptAttachment[]> {
  return Promise.all(
    files.map(async (file) =>
      attachBytes(new Uint8Array(await file.arrayBuffer()), {
        mimeType: file.type || "application/octet-stream",
        displayName: file.name,
      }),
    ),
  );
}
