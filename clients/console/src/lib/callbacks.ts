import { answerPermission, type AnswerInit, type Callback, reject } from "@copilot-grpc/client";
import { CallbackKind } from "@copilot-grpc/client/gen/copilot/bridge/v1/callback_pb";

/** What a callback asks, for people. */
export interface Question {
  readonly callback: Callback;
  /** One line: "Run a command". */
  readonly title: string;
  /** The command, the path, the question. */
  readonly subject: string;
  /** The agent's reason. */
  readonly intention: string;
  /** What to be careful about. */
  readonly warning: string;
  /** The subject is code, a path or an address. */
  readonly code: boolean;
  /** A change of a file as unified diff. */
  readonly diff: string;
  /** Further details as text, for example arguments. */
  readonly details: string;
  readonly form: "permission" | "question" | "elicitation" | "plan" | "choice" | "none";
  /** The permission can be given for the rest of the session. */
  readonly forSession: boolean;
  /** The caller may approve: guests of a shared session approve only calls of callers' tools, one at a time. */
  readonly approvable: boolean;
  /** The choices of a form of that kind. */
  readonly choices: readonly Choice[];
}

/** A choice and its answer. */
export interface Choice {
  readonly name: string;
  readonly answer: AnswerInit;
  readonly kind: "primary" | "plain" | "danger";
}

type Parts = Partial<Omit<Question, "callback">>;
type Request = Callback["request"];
type Permission = NonNullable<Extract<Request, { case: "permission" }>["value"]["permissionRequest"]>["variant"];

/** Describes a callback. The texts are as the CLI sent them: show them as hostile. */
export function questionOf(callback: Callback): Question {
  const question = describe(callback);
  if (!isShared(callback.sessionId)) return question;
  const { request } = callback;
  const ofTool = request.case === "permission" && request.value.permissionRequest?.variant.case === "customTool";
  return { ...question, approvable: ofTool, forSession: false };
}

/** Sessions that another tenant shares have the name OWNER/SESSION. */
function isShared(sessionId: string): boolean {
  return sessionId.includes("/");
}

function describe(callback: Callback): Question {
  return {
    callback,
    title: "Answer the agent",
    subject: "",
    intention: "",
    warning: "",
    code: false,
    diff: "",
    details: "",
    form: "none",
    forSession: false,
    approvable: true,
    choices: [],
    ...partsOf(callback),
  };
}

function partsOf(callback: Callback): Parts {
  const { request } = callback;
  switch (request.case) {
    case "permission":
      return {
        form: "permission",
        ...permissionParts(request.value.permissionRequest?.variant ?? { case: undefined }),
      };
    case "userInput":
      return { form: "question", title: "Answer a question", subject: request.value.question };
    case "elicitation":
      return {
        form: "elicitation",
        title: request.value.elicitationSource ? `${request.value.elicitationSource} asks` : "Fill in a form",
        subject: request.value.message,
        details: request.value.url ?? "",
      };
    case "exitPlanMode":
      return {
        form: "plan",
        title: "Approve a plan",
        subject: request.value.summary,
        details: request.value.planContent ?? "",
      };
    case "autoModeSwitch":
      return { form: "choice", title: "Switch to auto mode", ...autoModeParts(request.value) };
    case "sessionLimits":
      return { form: "choice", title: "The session's limit is reached", ...limitParts(request.value) };
    case "installationConfirm":
      return { form: "choice", title: "Confirm an installation", ...installationParts(request.value) };
    case undefined:
      return callback.totalBytes > 0n
        ? { title: kindName(callback.kind), form: callback.kind === CallbackKind.PERMISSION ? "permission" : "none" }
        : { title: kindName(callback.kind) };
    default:
      return { title: kindName(callback.kind), subject: "A program answers this, not a person." };
  }
}

/** "EXIT_PLAN_MODE" as "Exit plan mode". */
export function kindName(kind: CallbackKind): string {
  const name = (CallbackKind[kind] ?? "Unknown request").replaceAll("_", " ").toLowerCase();
  return name.charAt(0).toUpperCase() + name.slice(1);
}

function permissionParts(variant: Permission): Parts {
  switch (variant.case) {
    case "shell": {
      const { fullCommandText, intention, warning = "", canOfferSessionApproval, requestSandboxBypass } = variant.value;
      const bypass = requestSandboxBypass ? "The command asks to run outside of the sandbox." : "";
      return {
        title: "Run a command",
        subject: fullCommandText,
        code: true,
        intention,
        warning: [warning, bypass].filter(Boolean).join(" "),
        details: variant.value.resolvedWorkingDirectory ?? "",
        forSession: canOfferSessionApproval,
      };
    }
    case "write": {
      const { fileName, intention, diff, canOfferSessionApproval, requestSandboxBypass } = variant.value;
      return {
        title: variant.value.newFileContents !== undefined && !diff.includes("\n-") ? "Write a file" : "Change a file",
        subject: fileName,
        code: true,
        intention,
        diff,
        warning: requestSandboxBypass ? "The change asks to leave the sandbox." : "",
        forSession: canOfferSessionApproval,
      };
    }
    case "read":
      return { title: "Read a file", subject: variant.value.path, code: true, intention: variant.value.intention, forSession: true };
    case "url":
      return { title: "Open an address", subject: variant.value.url, code: true, intention: variant.value.intention, forSession: true };
    case "mcp": {
      const { serverName, toolTitle, toolName, argsJson = "", readOnly } = variant.value;
      const warning = readOnly ? "" : "The tool may change something.";
      return { title: `Use ${toolTitle || toolName} of ${serverName}`, subject: toolName, code: true, details: argsJson, warning, forSession: true };
    }
    case "customTool": {
      const { toolName, toolDescription, argsJson = "" } = variant.value;
      return { title: "Use a tool", subject: toolName, code: true, intention: toolDescription, details: argsJson, forSession: true };
    }
    case "memory":
      return { title: "Change the memory", subject: variant.value.fact, intention: variant.value.reason ?? "" };
    case "hook":
      return {
        title: "A hook asks",
        subject: variant.value.toolName,
        code: true,
        intention: variant.value.hookMessage ?? "",
        details: variant.value.toolArgsJson ?? "",
      };
    case "workflow":
      return { title: "Run a workflow", subject: variant.value.name, intention: variant.value.description };
    case "unrecognized":
      return { title: "Permit an action", details: variant.value };
    default:
      return { title: variant.case ? `Permit: ${variant.case}` : "Permit an action" };
  }
}

function autoModeParts(value: Extract<Request, { case: "autoModeSwitch" }>["value"]): Parts {
  const answer = (response: number): AnswerInit => ({ answer: { case: "autoModeSwitch", value: { response } } });
  const wait = value.retryAfterSeconds ? ` The limit ends in ${Math.ceil(value.retryAfterSeconds / 60)} min.` : "";
  return {
    subject: `The model's rate limit is reached (${value.errorCode ?? "unknown"}).${wait}`,
    choices: [
      { name: "Switch now", answer: answer(1), kind: "primary" },
      { name: "Always switch", answer: answer(2), kind: "plain" },
      { name: "Do not switch", answer: answer(3), kind: "danger" },
    ],
  };
}

function limitParts(value: Extract<Request, { case: "sessionLimits" }>["value"]): Parts {
  const { usedAiCredits, maxAiCredits } = value;
  const answer = (action: number, more: object = {}): AnswerInit => ({
    answer: { case: "sessionLimits", value: { action, ...more } },
  });
  return {
    subject: `${usedAiCredits} of ${maxAiCredits} AI credits are used.`,
    choices: [
      { name: `Add ${maxAiCredits} credits`, answer: answer(1, { additionalAiCredits: maxAiCredits }), kind: "primary" },
      { name: "Remove the limit", answer: answer(3), kind: "plain" },
      { name: "Stop", answer: answer(4), kind: "danger" },
    ],
  };
}

function installationParts(value: Extract<Request, { case: "installationConfirm" }>["value"]): Parts {
  const { confirmationId, reviewFingerprint, review } = value;
  const answer = (decision: number): AnswerInit => ({
    answer: { case: "installationConfirm", value: { confirmationId, reviewFingerprint, decision } },
  });
  return {
    subject: `Resource: ${review?.variant.case ?? "unknown"}`,
    details: JSON.stringify(review?.variant.value ?? {}, (key, entry: unknown) =>
      key.startsWith("$") ? undefined : typeof entry === "bigint" ? Number(entry) : entry,
    ),
    choices: [
      { name: "Install", answer: answer(1), kind: "primary" },
      { name: "Decline", answer: answer(2), kind: "danger" },
    ],
  };
}

/** Answers to a permission request. */
export const permissionAnswers = {
  once: (): AnswerInit => answerPermission("approve"),
  forSession: (): AnswerInit => answerPermission("approve-for-session"),
  /** Without feedback the turn is aborted; with it the model reads the text and goes on. */
  refuse: (feedback: string): AnswerInit => answerPermission(feedback ? reject(feedback) : "reject"),
};

export function questionAnswer(answer: string, wasFreeform: boolean): AnswerInit {
  return { answer: { case: "userInput", value: { answer, wasFreeform } } };
}

export function planAnswer(approved: boolean, selectedAction: string, feedback: string): AnswerInit {
  return {
    answer: {
      case: "exitPlanMode",
      value: { approved, ...(selectedAction ? { selectedAction } : {}), ...(feedback ? { feedback } : {}) },
    },
  };
}
