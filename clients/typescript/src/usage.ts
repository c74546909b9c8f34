import { timestampFromDate } from "@bufbuild/protobuf/wkt";
import { defined } from "./options.js";
import { UsageGroup } from "./proto.js";

/** Selects sessions. A session must match all fields that are given. */
export interface SessionSelection {
  workingDirectory?: string;
  gitRoot?: string;
  repository?: string;
  branch?: string;
  /** Labels that the session has, with these values. */
  labels?: Record<string, string>;
}

/** A dimension of usage. */
export type UsageDimension = "day" | "model" | "session" | "owner";

/** Selects and groups the rows of `Client.usage`. */
export interface UsageOptions extends SessionSelection {
  /** One row for each combination of these; default: one row with the sum. */
  by?: UsageDimension[];
  /** Only this session. */
  sessionId?: string;
  /** The first day is the day of this time, in UTC. */
  start?: Date;
  /** The last day is the day of this time, in UTC. */
  end?: Date;
  signal?: AbortSignal;
}

const groups = {
  day: UsageGroup.DAY,
  model: UsageGroup.MODEL,
  session: UsageGroup.SESSION,
  owner: UsageGroup.OWNER,
} as const;

/** The request that options stand for. */
export function usageRequest(options: UsageOptions) {
  const { by = [], sessionId, start, end, signal: _, ...filter } = options;
  return defined({
    sessionId,
    filter,
    groupBy: by.map((dimension) => groups[dimension]),
    startTime: start && timestampFromDate(start),
    endTime: end && timestampFromDate(end),
  });
}
