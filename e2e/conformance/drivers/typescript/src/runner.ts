// Runs one case.
import { readFile } from "node:fs/promises";
import { create } from "@bufbuild/protobuf";
import {
  attachBytes,
  attachPath,
  attachStream,
  answerPermission,
  answerTool,
  type Client,
  connect,
  type EventOrGap,
  type Outcome as TurnOutcome,
  type Session,
  isGap,
  tokenFromFile,
} from "@copilot-grpc/client/node";
import { connect as connectWeb } from "@copilot-grpc/client/web";
import {
  type Attachment,
  type Case,
  type Connect,
  type Endpoint,
  EventSchema,
  type Event,
  type Events,
  Events_From,
  type Inbox,
  type List,
  type Observation,
  ObservationSchema,
  type Open,
  Open_How,
  OutcomeSchema,
  type Resolve,
  type Result,
  ResultSchema,
  type Run,
  type Send,
  type Step,
  type StepResult,
  StepResultSchema,
  type Usage,
  type Watch,
} from "./gen/copilot/conformance/v1/conformance_pb.js";
import { errorOf } from "./errors.js";
import { optionsOf, toolsOf } from "./handlers.js";

/** The library has no such operation. */
export class Unsupported extends Error {}

interface Background {
  readonly controller: AbortController;
  readonly step: Step;
  done: Promise<void>;
}

export class CaseRunner {
  readonly #control: (name: string) => Promise<void>;
  readonly #clients = new Map<string, Client>();
  readonly #sessions = new Map<string, Session>();
  readonly #background = new Map<string, Background>();
  readonly #gates = new Set<string>();
  readonly #observations: Observation[] = [];
  readonly #over = new AbortController();
  #waiting: (() => void)[] = [];
  #endpoint: Endpoint | undefined;
  /** Labels of the steps whose turn ends when they are cancelled: the library wants to know that when they begin. */
  readonly #aborting = new Set<string>();

  constructor(control: (name: string) => Promise<void>) {
    this.#control = control;
  }

  async run(message: Case): Promise<Result> {
    this.#endpoint = message.endpoint;
    for (const { action } of message.steps)
      if (action.case === "cancel" && action.value.abortTurn) this.#aborting.add(action.value.step);
    const steps: StepResult[] = [];
    for (const step of message.steps) {
      const result = create(StepResultSchema);
      steps.push(result);
      if (step.background === "") {
        await this.#step(step, result, this.#over.signal);
        continue;
      }
      const controller = new AbortController();
      const background: Background = { controller, step, done: Promise.resolve() };
      this.#background.set(step.background, background);
      background.done = this.#step(step, result, controller.signal);
    }
    await Promise.all([...this.#clients.values()].map((client) => client.close()));
    this.#over.abort(new Error("the case is over"));
    for (const { controller, done } of this.#background.values()) {
      controller.abort(new Error("the case is over"));
      await done;
    }
    return create(ResultSchema, { name: message.name, steps, observations: this.#observations });
  }

  async #step(step: Step, result: StepResult, signal: AbortSignal): Promise<void> {
    try {
      await this.#act(step, result, signal);
    } catch (error) {
      result.error = errorOf(error, signal);
    }
  }

  async #act({ action, background }: Step, result: StepResult, signal: AbortSignal): Promise<void> {
    switch (action.case) {
      case "connect":
        return this.#connect(action.value);
      case "open":
        return this.#open(action.value);
      case "cancel":
        return this.#background.get(action.value.step)?.controller.abort(new Error("cancelled"));
      case "await":
        return this.#background.get(action.value.step)?.done;
      case "awaitObservation": {
        const { kind, name, count, withdrawn } = action.value;
        const fits = (o: Observation) =>
          o.kind === kind && (name === "" || o.name === name) && (!withdrawn || o.withdrawn);
        return this.until(() => this.#observations.filter(fits).length >= count, signal);
      }
      case "release":
        this.#gates.add(action.value.gate);
        return this.#wake();
      case "control":
        return this.#control(action.value.name);
      case "watch":
        return this.#watch(action.value, signal);
      case "list":
        return this.#list(action.value, result);
      case "usage":
        return this.#usage(action.value, result);
      case "inbox":
        return this.#inbox(action.value, signal);
      default:
        return this.#onSession(action, background, result, signal);
    }
  }

  async #onSession(action: Step["action"], background: string, result: StepResult, signal: AbortSignal) {
    const ofSession = action.value as { session: string };
    const session = this.#session(ofSession.session);
    const options = background === "" ? {} : { signal, detach: !this.#aborting.has(background) };
    switch (action.case) {
      case "send":
        await session.send(action.value.text, { ...sendOptions(action.value), ...options });
        return;
      case "sendAndWait": {
        const { timeoutMs } = action.value;
        const wait = timeoutMs > 0 ? { timeoutMs } : {};
        const all = { ...sendOptions(action.value), ...wait, ...options };
        result.outcome = outcomeOf(await session.sendAndWait(action.value.text, all));
        return;
      }
      case "run":
        return this.#run(session, action.value, result, options);
      case "events":
        return this.#events(session, action.value, result, signal);
      case "abort":
        result.turnWasRunning = await session.abort();
        return;
      case "resolve":
        return this.#resolve(session, action.value);
      case "get":
        result.text = (await session.get()).state.toUpperCase();
        return;
      case "delete":
        return session.delete();
      case "disconnect":
        return session.disconnect();
      case "close":
        return session.close();
      case "setTools":
        return session.setTools(toolsOf(this, action.value.session, action.value.tools));
      case "labels":
        result.labels = await session.updateLabels(action.value.set, { remove: action.value.remove });
        return;
      case "awaitEnd":
        throw await session.closed;
      default:
        throw new Unsupported(`the driver has no step ${action.case}`);
    }
  }

  async #connect({ client, tokenFile, giveUpAfterMs, changingToken, observeLog }: Connect): Promise<void> {
    const { target = "", caFile = "", token = "", webUrl = "" } = this.#endpoint ?? {};
    const reconnect = { minBackoffMs: 10, maxBackoffMs: 100, giveUpAfterMs: giveUpAfterMs || 30_000 };
    let calls = 0;
    const sent = changingToken ? () => `token-${++calls}` : tokenFile ? tokenFromFile(tokenFile) : token;
    const log = (_message: string, attributes?: Record<string, unknown>) => {
      if (attributes?.["callback_id"]) this.observe("", "log", "");
    };
    const logger = { debug: () => undefined, warn: log, error: log };
    const options = { reconnect, ...(sent ? { token: sent } : {}), ...(observeLog ? { logger } : {}) };
    if (webUrl) {
      this.#clients.set(client, await connectWeb({ baseUrl: webUrl, ...options }));
      return;
    }
    const tls = caFile ? { tls: { ca: await readFile(caFile) } } : {};
    this.#clients.set(client, await connect({ target, ...tls, ...options }));
  }

  async #open(open: Open): Promise<void> {
    const client = this.#client(open.client);
    const id = open.idOf ? this.#session(open.idOf).id : open.id;
    const options = optionsOf(this, open);
    let session: Session;
    if (open.how === Open_How.CREATE) session = await client.createSession({ ...options, ...(id ? { id } : {}) });
    else if (open.how === Open_How.RESUME) session = await client.resumeSession(id, options);
    else if (open.how === Open_How.OPEN_OR_CREATE) session = await client.openSession(id, options);
    else if (open.how === Open_How.JOIN) session = await client.joinSession(id, options);
    else session = client.session(id);
    this.#sessions.set(open.session, session);
  }

  #client(name: string): Client {
    const client = this.#clients.get(name);
    if (!client) throw new Error(`there is no client ${name}`);
    return client;
  }

  #session(name: string): Session {
    const session = this.#sessions.get(name);
    if (!session) throw new Error(`there is no session ${name}`);
    return session;
  }

  async #run(session: Session, { text, deltas, types }: Run, result: StepResult, options: object): Promise<void> {
    const turn = session.run(text, options);
    if (deltas) for await (const piece of turn.deltas()) result.text += piece;
    else
      for await (const item of turn) {
        const event = eventOf(item);
        if (types.length === 0 || types.includes(event.type)) result.events.push(event);
      }
    result.outcome = outcomeOf(await turn.outcome());
  }

  async #events(session: Session, events: Events, result: StepResult, signal: AbortSignal): Promise<void> {
    const { from, types, count, until, history, pauseAfter, gate } = events;
    const options = {
      signal,
      ...(from === Events_From.BEGINNING ? { from: "beginning" as const } : {}),
      ...(from === Events_From.NOW ? { from: "now" as const } : {}),
      ...(types.length > 0 ? { types } : {}),
    };
    for await (const item of history ? session.history(options) : session.events(options)) {
      const event = eventOf(item);
      result.events.push(event);
      if (result.events.length === pauseAfter) await this.gate(this.observe(events.session, "events", ""), gate, signal);
      else if (result.events.length === count) return;
      if (until !== "" && event.type === until) return;
    }
  }

  async #list({ client, labels }: List, result: StepResult): Promise<void> {
    for await (const info of this.#client(client).listSessions({ labels })) {
      for (const [name, session] of this.#sessions) if (session.id === info.id) result.sessions.push(name);
    }
    result.sessions.sort();
  }

  async #usage({ client, session }: Usage, result: StepResult): Promise<void> {
    for (const row of await this.#client(client).usage({ sessionId: this.#session(session).id })) {
      result.turns += row.turns;
      result.requests += row.requests;
    }
  }

  async #inbox({ client, labels, permission, count }: Inbox, signal: AbortSignal): Promise<void> {
    let ended = 0;
    for await (const change of this.#client(client).watchPending({ handle: true, labels, signal })) {
      if (change.state === "waits") await change.answer(answerPermission(permission === "approve" ? permission : "reject"));
      else if (++ended === count) return;
    }
  }

  async #resolve(session: Session, { answer, callbackId }: Resolve): Promise<void> {
    let id = callbackId;
    while (id === "") id = (await session.pending())[0]?.id ?? "";
    const decision = answer.value === "approve" ? ("approve" as const) : ("reject" as const);
    await session.resolve(id, answer.case === "permission" ? answerPermission(decision) : answerTool(answer.value));
  }

  async #watch({ client, change, count }: Watch, signal: AbortSignal): Promise<void> {
    let seen = 0;
    for await (const next of this.#client(client).watchSessions({ signal })) {
      if (next.kind === change && ++seen === count) return;
    }
  }

  /** Records a call of a function. */
  observe(session: string, kind: string, name: string, argumentsJson = ""): Observation {
    const observation = create(ObservationSchema, { session, kind, name, argumentsJson });
    this.#observations.push(observation);
    this.#wake();
    return observation;
  }

  /** Waits at a gate, if there is one, or until the answer is not wanted any more. */
  async gate(observation: Observation, gate: string, signal: AbortSignal): Promise<void> {
    if (gate === "") return;
    try {
      await this.until(() => this.#gates.has(gate), signal);
    } catch {
      observation.withdrawn = true;
      this.#wake();
    }
  }

  /** Waits for something of this object to hold. */
  async until(holds: () => boolean, signal: AbortSignal): Promise<void> {
    const wake = () => this.#wake();
    signal.addEventListener("abort", wake);
    try {
      while (!holds()) {
        signal.throwIfAborted();
        await new Promise<void>((resolve) => this.#waiting.push(resolve));
      }
    } finally {
      signal.removeEventListener("abort", wake);
    }
  }

  #wake(): void {
    const waiting = this.#waiting;
    this.#waiting = [];
    for (const resolve of waiting) resolve();
  }
}

function sendOptions({ attachments, immediate }: Send) {
  return {
    ...(attachments.length > 0 ? { attachments: attachments.map(attachmentOf) } : {}),
    ...(immediate ? { mode: "immediate" as const } : {}),
  };
}

function attachmentOf({ source, mimeType, name }: Attachment) {
  if (source.case === "path") return attachPath(source.value, { displayName: name });
  if (source.case === "stream")
    return attachStream(new Blob([Uint8Array.from(source.value)]).stream(), { mimeType, displayName: name });
  return attachBytes(source.value ?? new Uint8Array(), { mimeType, displayName: name });
}

function outcomeOf(outcome: TurnOutcome) {
  const status = outcome.status.toUpperCase();
  return create(OutcomeSchema, { status, text: outcome.text, errorType: outcome.error?.type ?? "", error: textOf(outcome) });
}

/** The text of the error that the library makes of an outcome. */
function textOf(outcome: TurnOutcome): string {
  try {
    outcome.orThrow();
    return "";
  } catch (error) {
    return (error as Error).message;
  }
}

function eventOf(item: EventOrGap): Event {
  if (isGap(item)) {
    return create(EventSchema, {
      gap: item.reason.toUpperCase(),
      epoch: item.through?.epoch ?? 0n,
      seq: item.through?.seq ?? 0n,
    });
  }
  const { epoch, seq } = item.position ?? { epoch: 0n, seq: 0n };
  return create(EventSchema, { type: item.event?.eventType ?? "", epoch, seq });
}
