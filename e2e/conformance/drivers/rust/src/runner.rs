//! Runs one case.

use std::collections::{HashMap, HashSet};
use std::convert::Infallible;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use copilot_grpc::bridge::v1 as bridge;
use copilot_grpc::{Attachment, Client, Error, Prompt, Reconnect, Session, Start, Token, answers};
use tokio::sync::{oneshot, watch};
use tokio::task::JoinHandle;

use crate::pb::error::Kind;
use crate::pb::step::Action;
use crate::report::{error_of, event_of, outcome_of, problem};
use crate::{calls, control, handlers, pb};

/// What a case and its handlers share.
#[derive(Default)]
pub struct State {
    pub observations: Vec<pb::Observation>,
    pub gates: HashSet<String>,
    sessions: HashMap<String, Session>,
    clients: HashMap<String, Client>,
}

pub struct Runner {
    pub state: Mutex<State>,
    changed: watch::Sender<u64>,
    endpoint: pb::Endpoint,
    /// Labels of the steps whose turn ends when they are cancelled.
    aborting: HashSet<String>,
}

/// A step in the background: its task, and the way to cancel it.
struct Background {
    task: Option<JoinHandle<pb::StepResult>>,
    cancel: Option<oneshot::Sender<()>>,
}

pub async fn run(case: pb::Case) -> pb::Result {
    let aborting = case.steps.iter().filter_map(|step| match &step.action {
        Some(Action::Cancel(cancel)) if cancel.abort_turn => Some(cancel.step.clone()),
        _ => None,
    });
    let runner = Arc::new(Runner {
        state: Mutex::default(),
        changed: watch::Sender::new(0),
        endpoint: case.endpoint.unwrap_or_default(),
        aborting: aborting.collect(),
    });
    let mut background: HashMap<String, Background> = HashMap::new();
    let mut results: Vec<pb::StepResult> = Vec::new();
    let mut labels: HashMap<String, usize> = HashMap::new();
    for step in case.steps {
        let action = step.action.expect("a step has an action");
        let mut result = pb::StepResult::default();
        match action {
            Action::Cancel(cancel) => {
                if let Some(cancel) = background.get_mut(&cancel.step).and_then(|b| b.cancel.take()) {
                    let _ = cancel.send(());
                }
            }
            Action::Await(awaited) => {
                if let Some(task) = background.get_mut(&awaited.step).and_then(|b| b.task.take()) {
                    results[labels[&awaited.step]] = task.await.unwrap_or_default();
                }
            }
            action if step.background.is_empty() => result = runner.step(action, "").await,
            action => {
                labels.insert(step.background.clone(), results.len());
                background.insert(step.background.clone(), start(runner.clone(), action, step.background));
            }
        }
        results.push(result);
    }
    let clients: Vec<Client> = runner.state.lock().unwrap().clients.values().cloned().collect();
    for client in clients {
        client.close().await;
    }
    for (label, mut step) in background {
        drop(step.cancel.take());
        if let Some(task) = step.task.take() {
            results[labels[&label]] = task.await.unwrap_or_default();
        }
    }
    // Handlers have the runner, which has their sessions: what is left of a case would stay until the driver ends, and
    // would then leave its sessions one after the other.
    let State { observations, .. } = std::mem::take(&mut *runner.state.lock().unwrap());
    pb::Result { name: case.name, steps: results, observations }
}

/// Starts a step. Cancelling it drops its future.
fn start(runner: Arc<Runner>, action: Action, label: String) -> Background {
    let (cancel, cancelled) = oneshot::channel::<()>();
    let task = tokio::spawn(async move {
        let partial = Arc::new(Mutex::new(pb::StepResult::default()));
        let step = runner.act(action, &label, &partial);
        let error = tokio::select! {
            done = step => done.err(),
            _ = cancelled => Some(problem(Kind::Cancelled, "the future was dropped")),
        };
        let mut result = partial.lock().unwrap().clone();
        result.error = error;
        result
    });
    Background { task: Some(task), cancel: Some(cancel) }
}

type Done = std::result::Result<(), pb::Error>;

/// Converts the library's errors.
fn status(error: Error) -> pb::Error {
    error_of(&error)
}

impl Runner {
    async fn step(self: &Arc<Self>, action: Action, label: &str) -> pb::StepResult {
        let result = Mutex::new(pb::StepResult::default());
        let error = self.act(action, label, &result).await.err();
        pb::StepResult { error, ..result.into_inner().unwrap() }
    }

    async fn act(self: &Arc<Self>, action: Action, label: &str, result: &Mutex<pb::StepResult>) -> Done {
        let abort = self.aborting.contains(label);
        match action {
            Action::Connect(step) => self.connect(step).await,
            Action::Open(step) => self.open(step).await,
            Action::Send(step) => {
                self.session(&step.session)?.send(prompt_of(&step)).await.map(|_| ()).map_err(status)
            }
            Action::SendAndWait(step) => {
                let mut wait = self.session(&step.session)?.send_and_wait(prompt_of(&step));
                if step.timeout_ms > 0 {
                    wait = wait.timeout(millis(step.timeout_ms));
                }
                let wait = if abort { wait.abort_on_drop() } else { wait };
                let outcome = wait.await.map_err(status)?;
                result.lock().unwrap().outcome = Some(outcome_of(outcome));
                Ok(())
            }
            Action::Run(step) => self.run_turn(step, abort, result).await,
            Action::Events(step) => self.events(step, result).await,
            Action::Abort(step) => {
                let running = self.session(&step.session)?.abort().await.map_err(status)?;
                result.lock().unwrap().turn_was_running = running;
                Ok(())
            }
            Action::AwaitObservation(step) => {
                self.until(|state| {
                    let fits = |o: &&pb::Observation| {
                        o.kind == step.kind
                            && (step.name.is_empty() || o.name == step.name)
                            && (o.withdrawn || !step.withdrawn)
                    };
                    state.observations.iter().filter(fits).count() >= usize::try_from(step.count).unwrap_or(0)
                })
                .await;
                Ok(())
            }
            Action::Release(step) => {
                self.update(|state| state.gates.insert(step.gate));
                Ok(())
            }
            Action::Resolve(step) => self.resolve(step).await,
            Action::Get(step) => {
                let info = self.session(&step.session)?.get().await.map_err(status)?;
                result.lock().unwrap().text = info.state.to_string().to_uppercase();
                Ok(())
            }
            Action::List(step) => self.list(step, result).await,
            Action::Delete(step) => self.session(&step.session)?.delete().await.map_err(status),
            Action::Disconnect(step) => self.session(&step.session)?.disconnect().await.map_err(status),
            Action::Close(step) => {
                self.session(&step.session)?.close().await;
                Ok(())
            }
            Action::SetTools(step) => {
                let tools = step.tools.into_iter().map(|tool| handlers::tool(self, &step.session, tool));
                let tools: Vec<_> = tools.collect();
                self.session(&step.session)?.set_tools(tools).await.map_err(status)
            }
            Action::Control(step) => {
                control(&step.name).await;
                Ok(())
            }
            Action::Watch(step) => self.watch(step).await,
            Action::Labels(step) => {
                let labels = self.session(&step.session)?.update_labels(step.set, step.remove).await.map_err(status)?;
                result.lock().unwrap().labels = labels;
                Ok(())
            }
            Action::Usage(step) => {
                let id = self.session(&step.session)?.id().to_owned();
                let (turns, requests) = calls::usage(&self.client(&step.client)?, id).await.map_err(status)?;
                let mut result = result.lock().unwrap();
                (result.turns, result.requests) = (turns, requests);
                Ok(())
            }
            Action::Inbox(step) => calls::inbox(&self.client(&step.client)?, step).await.map_err(status),
            Action::AwaitEnd(step) => Err(status(self.session(&step.session)?.wait_ended().await)),
            Action::Cancel(_) | Action::Await(_) => Ok(()),
        }
    }

    async fn connect(self: &Arc<Self>, step: pb::Connect) -> Done {
        let give_up_after = millis(if step.give_up_after_ms > 0 { step.give_up_after_ms } else { 30_000 });
        let reconnect = Reconnect { first: millis(10), longest: millis(100), give_up_after };
        // The driver ends with its last case, whose server may be gone, and must not wait for it too long.
        let mut connect = Client::connect(&self.endpoint.target).reconnect(reconnect).close_timeout(millis(3000));
        if step.changing_token {
            let calls = Arc::new(AtomicU64::new(0));
            connect = connect.token(Token::function(move || {
                let number = calls.fetch_add(1, Ordering::Relaxed) + 1;
                async move { Ok::<_, Infallible>(format!("token-{number}")) }
            }));
        } else if !step.token_file.is_empty() {
            connect = connect.token(Token::file(&step.token_file));
        } else if !self.endpoint.token.is_empty() {
            connect = connect.token(self.endpoint.token.as_str());
        }
        if !self.endpoint.ca_file.is_empty() {
            connect = connect.ca(std::path::PathBuf::from(&self.endpoint.ca_file));
        }
        if step.observe_log {
            crate::log::observe(self);
        }
        let client = connect.await.map_err(status)?;
        self.update(|state| state.clients.insert(step.client, client));
        Ok(())
    }

    async fn open(self: &Arc<Self>, step: pb::Open) -> Done {
        let client = self.client(&step.client)?;
        let id = if step.id_of.is_empty() { step.id.clone() } else { self.session(&step.id_of)?.id().to_owned() };
        let name = step.session.clone();
        let session = match step.how() {
            pb::open::How::Create => {
                let builder = handlers::configure(client.create_session(), self, &step);
                if id.is_empty() { builder.await } else { builder.session_id(id).await }
            }
            pb::open::How::Resume => {
                let builder = handlers::configure(client.resume_session(id), self, &step);
                if step.continue_pending_work { builder.continue_pending_work().await } else { builder.await }
            }
            pb::open::How::OpenOrCreate => handlers::configure(client.open_session(id), self, &step).await,
            pb::open::How::Join => handlers::participate(client.join_session(id), self, &step).await,
            _ => Ok(client.session(id)),
        };
        let session = session.map_err(status)?;
        self.update(|state| state.sessions.insert(name, session));
        Ok(())
    }

    async fn run_turn(&self, step: pb::Run, abort: bool, result: &Mutex<pb::StepResult>) -> Done {
        let mut turn = self.session(&step.session)?.run(step.text);
        if abort {
            turn = turn.abort_on_drop();
        }
        if step.deltas {
            let mut deltas = turn.deltas();
            while let Some(text) = deltas.next().await {
                result.lock().unwrap().text.push_str(&text.map_err(status)?);
            }
        } else {
            while let Some(entry) = turn.next().await {
                let event = event_of(&entry.map_err(status)?);
                if step.types.is_empty() || step.types.contains(&event.r#type) {
                    result.lock().unwrap().events.push(event);
                }
            }
        }
        let outcome = turn.outcome().await.map_err(status)?;
        result.lock().unwrap().outcome = Some(outcome_of(outcome));
        Ok(())
    }

    async fn events(&self, step: pb::Events, result: &Mutex<pb::StepResult>) -> Done {
        let session = self.session(&step.session)?;
        let mut values = if step.history {
            session.history(None, bridge::EventFilter { types: step.types.clone(), ..Default::default() })
        } else {
            let mut subscribe = session.events();
            if !step.types.is_empty() {
                subscribe = subscribe.types(step.types.clone());
            }
            match step.from() {
                pb::events::From::Beginning => subscribe = subscribe.start(Start::Beginning),
                pb::events::From::Now => subscribe = subscribe.start(Start::Now),
                _ => {}
            }
            subscribe.stream()
        };
        while let Some(entry) = values.next().await {
            let event = event_of(&entry.map_err(status)?);
            let is_last = !step.until.is_empty() && event.r#type == step.until;
            let number = {
                let mut result = result.lock().unwrap();
                result.events.push(event);
                i32::try_from(result.events.len()).unwrap_or(i32::MAX)
            };
            if number == step.pause_after {
                self.gate(self.observe(&step.session, "events", "", ""), &step.gate).await;
            }
            if is_last || number == step.count {
                break;
            }
        }
        Ok(())
    }

    async fn resolve(&self, step: pb::Resolve) -> Done {
        let session = self.session(&step.session)?;
        let mut id = step.callback_id;
        while id.is_empty() {
            let pending = session.pending().await.map_err(status)?;
            id = pending.first().map(|callback| callback.id().to_owned()).unwrap_or_default();
        }
        let answer = match step.answer {
            Some(pb::resolve::Answer::ToolText(text)) => answers::tool(text),
            Some(pb::resolve::Answer::Permission(decision)) if decision == "approve" => answers::approve(),
            _ => answers::reject("Permission denied."),
        };
        session.resolve(id, answer).await.map_err(status)
    }

    async fn list(&self, step: pb::List, result: &Mutex<pb::StepResult>) -> Done {
        let filter = Some(bridge::SessionFilter { labels: step.labels, ..Default::default() });
        let request = bridge::ListSessionsRequest { filter, ..Default::default() };
        let mut list = self.client(&step.client)?.list_sessions(request);
        let mut names = Vec::new();
        while let Some(info) = list.next().await {
            let info = info.map_err(status)?;
            let state = self.state.lock().unwrap();
            names.extend(state.sessions.iter().filter(|(_, s)| s.id() == info.id).map(|(name, _)| name.clone()));
        }
        names.sort();
        result.lock().unwrap().sessions = names;
        Ok(())
    }

    async fn watch(&self, step: pb::Watch) -> Done {
        let mut changes = self.client(&step.client)?.watch_sessions();
        let (wanted, mut seen) = (step.change.to_lowercase(), 0);
        while let Some(change) = changes.next().await {
            seen += i32::from(change.map_err(status)?.kind.to_string() == wanted);
            if seen == step.count {
                break;
            }
        }
        Ok(())
    }

    fn client(&self, name: &str) -> std::result::Result<Client, pb::Error> {
        let state = self.state.lock().unwrap();
        state.clients.get(name).cloned().ok_or_else(|| problem(Kind::Usage, "there is no such client"))
    }

    fn session(&self, name: &str) -> std::result::Result<Session, pb::Error> {
        let state = self.state.lock().unwrap();
        state.sessions.get(name).cloned().ok_or_else(|| problem(Kind::Usage, "there is no such session"))
    }

    /// Records a call of a function, and returns its number.
    pub fn observe(&self, session: &str, kind: &str, name: &str, arguments_json: &str) -> usize {
        let observation = pb::Observation {
            kind: kind.to_owned(),
            session: session.to_owned(),
            name: name.to_owned(),
            arguments_json: arguments_json.to_owned(),
            withdrawn: false,
        };
        self.update(|state| {
            state.observations.push(observation);
            state.observations.len() - 1
        })
    }

    /// Waits at a gate, if there is one. Dropping the future withdraws the observation.
    pub async fn gate(&self, observation: usize, gate: &str) {
        if gate.is_empty() {
            return;
        }
        let mut guard = Withdrawn { runner: self, observation: Some(observation) };
        self.until(|state| state.gates.contains(gate)).await;
        guard.observation = None;
    }

    fn update<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        let value = change(&mut self.state.lock().unwrap());
        self.changed.send_modify(|version| *version += 1);
        value
    }

    async fn until(&self, holds: impl Fn(&State) -> bool) {
        let mut changed = self.changed.subscribe();
        while !holds(&self.state.lock().unwrap()) {
            let _ = changed.changed().await;
        }
    }
}

struct Withdrawn<'a> {
    runner: &'a Runner,
    observation: Option<usize>,
}

impl Drop for Withdrawn<'_> {
    fn drop(&mut self) {
        if let Some(number) = self.observation {
            self.runner.update(|state| state.observations[number].withdrawn = true);
        }
    }
}

fn millis(ms: i32) -> Duration {
    Duration::from_millis(u64::try_from(ms).unwrap_or(0))
}

fn prompt_of(step: &pb::Send) -> Prompt {
    let mut prompt = Prompt::new(step.text.clone());
    for attachment in &step.attachments {
        let attachment = match attachment.source.clone().unwrap_or(pb::attachment::Source::Data(Vec::new())) {
            pb::attachment::Source::Path(path) => Attachment::path(path),
            pb::attachment::Source::Stream(data) => {
                let reader = std::io::Cursor::new(data);
                Attachment::reader(reader, attachment.mime_type.clone()).name(attachment.name.clone())
            }
            pb::attachment::Source::Data(data) => {
                Attachment::bytes(data, attachment.mime_type.clone()).name(attachment.name.clone())
            }
        };
        prompt = prompt.attach(attachment);
    }
    if step.immediate { prompt.immediate() } else { prompt }
}
