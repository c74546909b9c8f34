import type { CopilotError } from "./errors.js";
import type { Answer, ModelResponseInit, SessionMessage, SubscribeResponse, ToolDefinition } from "./proto.js";

/** A stream that carries a participation: an Attach stream, or a Subscribe stream with calls of Resolve. */
export interface Link {
  /** True once the stream has ended. */
  readonly down: boolean;
  /** Passes frames on until the stream ends, and returns the reason. An error that `take` returns ends the stream. */
  serve(take: TakeFrame): Promise<Error>;
  /**
   * Sends an answer, and calls `settled` once: when the server has acknowledged it, with a CopilotError that the server
   * sent, or with a LinkDownError if the acknowledgement is lost.
   */
  answer(callbackId: string, answer: Answer, settled: Settled): void;
  /**
   * Replaces the participant's tools. Rejects with a CopilotError that the server sent, or with a LinkDownError if the
   * acknowledgement is lost.
   */
  setTools(tools: ToolDefinition[]): Promise<void>;
  /** Sends a part of a response to a model request. */
  modelResponse(part: ModelResponseInit): void;
  /** Leaves the session; the server then ends the stream. */
  leave(disconnect: boolean): Promise<void>;
  /** Ends the stream at once. */
  close(reason: Error): void;
}

/** Takes the end of a request: with an error if it failed. */
export type Settled = (error?: Error) => void;

/** Handles a frame. Returns an error if the stream must end. */
export type TakeFrame = (frame: SubscribeResponse) => Error | undefined;

/** The participation that a link carries. */
export interface Opened {
  participantId: string;
  /** Resumes the participation; empty for a link without participation on the server. */
  token: string;
  session: SessionMessage;
  /** An earlier participation was resumed. */
  resumed: boolean;
}

/** Functions that a link calls while it opens. */
export interface LinkObserver {
  /** The session is still being opened, and callbacks arrive already. */
  opening(link: Link, opening: { participantId: string; participantToken: string; sessionId: string }): void;
  /** The server installs or starts the CLI first. */
  progress(detail: string): void;
  take: TakeFrame;
  /** The server does not need further parts of a response to a model request. */
  modelFailed(requestId: string, error: CopilotError): void;
}

/** The link ended before a reply arrived: the request may or may not have reached the server. */
export class LinkDownError extends Error {
  override readonly name: string = "LinkDownError";

  constructor() {
    super("the stream ended before the server replied");
  }
}
