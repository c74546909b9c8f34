import { create } from "@bufbuild/protobuf";
import type { Call } from "./call.js";
import { type Answer, type AnswerInit, AnswerSchema, type Callback } from "./proto.js";
import { type Abstain, abstain } from "./tool.js";

type PermissionData = Extract<Callback["request"], { case: "permission" }>["value"];
type Action = NonNullable<PermissionData["permissionRequest"]>["variant"];
type DecisionInit = Extract<NonNullable<AnswerInit["answer"]>, { case: "permission" }>["value"];

/** A permission request of the agent. */
export interface PermissionRequest<C extends Action["case"] = Action["case"]> extends Omit<Call, "kind"> {
  /** The CLI's name of what needs the permission: shell, write, read, url, mcp, custom-tool, memory and others. */
  readonly kind: string;
  /** The action, with the details in its value. */
  readonly action: Extract<Action, { case: C }>;
  /** Everything that the CLI reports. */
  readonly data: PermissionData;
}

/**
 * A decision: "approve" permits the action once; "approve-for-session" permits equal actions for the rest of the
 * session (the same commands, the same tool, all reading or writing, the URL's origin); "reject" denies it;
 * `reject(text)` also tells the model why; "user-not-available" denies it as if there were no user; `abstain` leaves
 * the decision to other participants; `decision(…)` is every other decision of the CLI.
 */
export type PermissionDecision =
  "approve" | "approve-for-session" | "reject" | "user-not-available" | Decision | Abstain;

/** A decision with details. {@link reject} and {@link decision} make one. */
export class Decision {
  /** @internal */
  readonly fields: DecisionInit;

  /** @internal */
  constructor(fields: DecisionInit) {
    this.fields = fields;
  }
}

/** Decides on a permission request. A handler that throws denies the request. */
export type PermissionHandler = (request: PermissionRequest) => PermissionDecision | Promise<PermissionDecision>;

/** Denies the action; the model reads the feedback. Without feedback the turn is aborted. */
export function reject(feedback?: string): Decision {
  return new Decision({ variant: { case: "reject", value: feedback ? { feedback } : {} } });
}

/** Any decision of the CLI, for example an approval for a location. */
export function decision(fields: DecisionInit): Decision {
  return new Decision(fields);
}

/** Approves every request once: for sandboxes and tests. */
export const approveAll: PermissionHandler = () => "approve";

type Kind = Exclude<Action["case"], undefined | "unrecognized">;
type Rule<C extends Action["case"]> =
  PermissionDecision | ((request: PermissionRequest<C>) => PermissionDecision | Promise<PermissionDecision>);

/** Rules by the case of the action, and `otherwise` for all other requests; default: `abstain`. */
export type PermissionRules = { [C in Kind]?: Rule<C> } & { otherwise?: Rule<Action["case"]> };

/** Makes a handler from rules. */
export function permissionRules(rules: PermissionRules): PermissionHandler {
  const table = new Map<string | undefined, Rule<Action["case"]> | undefined>(
    Object.entries(rules) as [string, Rule<Action["case"]>][],
  );
  return (request) => {
    const rule = table.get(request.action.case) ?? table.get("otherwise") ?? abstain;
    return typeof rule === "function" ? rule(request) : rule;
  };
}

/** Asks handlers in order until one does not abstain. */
export function firstOf(...handlers: PermissionHandler[]): PermissionHandler {
  return async (request) => {
    for (const handler of handlers) {
      const made = await handler(request);
      if (made !== abstain) return made;
    }
    return abstain;
  };
}

/** The request that a handler decides on. */
export function permissionRequest(call: Call, data: PermissionData): PermissionRequest {
  const action = data.permissionRequest?.variant ?? { case: undefined };
  return { ...call, kind: kindOf(action), action, data } as PermissionRequest;
}

function kindOf(action: Action): string {
  if (action.case === undefined) return "";
  if (action.case !== "unrecognized") return action.case.replaceAll(/[A-Z]/g, (letter) => `-${letter.toLowerCase()}`);
  try {
    return String((JSON.parse(action.value) as { kind?: unknown }).kind ?? "");
  } catch {
    return "";
  }
}

/** The answer that a decision is. Throws a TypeError for a value that is none: an unknown value never approves. */
export function permissionAnswer(made: PermissionDecision): Answer {
  return create(AnswerSchema, { answer: permissionCase(made) });
}

function permissionCase(made: PermissionDecision): NonNullable<AnswerInit["answer"]> {
  if (made instanceof Decision) return { case: "permission", value: made.fields };
  switch (made) {
    case "approve":
      return { case: "approve", value: {} };
    case "approve-for-session":
      return { case: "permission", value: { variant: { case: "approveForSession", value: {} } } };
    case "reject":
      return { case: "reject", value: {} };
    case "user-not-available":
      return { case: "permission", value: { variant: { case: "userNotAvailable", value: {} } } };
    case abstain:
      return { case: "abstain", value: {} };
    default:
      throw new TypeError(`not a permission decision: ${String(made)}`);
  }
}
