//! Sessions: one conversation with an agent.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use tokio::io::AsyncWrite;
use tokio_util::sync::CancellationToken;

use crate::bridge::v1 as bridge;
use crate::cli::v1 as cli;
use crate::connection::{Connection, method};
use crate::core::Core;
use crate::error::{Error, Result};
use crate::events::{Entry, Start, Subscribe, Values};
use crate::inbox::PendingCallback;
use crate::info::SessionInfo;
use crate::participant::Participant;
use crate::position::Position;
use crate::prompt::Prompt;
use crate::run::Turn;
use crate::send::SendPrompt;
use crate::tool::Tool;
use crate::transfer;
use crate::turn::SendAndWait;

/// A session, as a participant or as a handle without tools and handlers.
///
/// Cheap to clone; all methods may run concurrently. The last clone leaves the session when it is dropped, in the
/// background; [`close`](Self::close) also waits for it. A handler that owns a clone of its own session keeps it open.
#[derive(Clone)]
pub struct Session(Arc<Inner>);

struct Inner {
    core: Arc<Core>,
    participant: Option<Arc<Participant>>,
    info: SessionInfo,
    opened_at: Option<Position>,
    over: Mutex<Option<Error>>,
}

impl Drop for Inner {
    fn drop(&mut self) {
        if let Some(participant) = &self.participant {
            participant.leave_soon();
        }
    }
}

impl Session {
    pub(crate) fn handle(connection: Arc<Connection>, id: String) -> Self {
        let info = bridge::Session { session_id: id.clone(), ..Default::default() }.into();
        let core = Core { connection, id, progress: Arc::default(), closed: CancellationToken::new() };
        Self(Arc::new(Inner { core: Arc::new(core), participant: None, info, opened_at: None, over: Mutex::default() }))
    }

    pub(crate) fn participating(
        connection: Arc<Connection>,
        participant: Arc<Participant>,
        session: bridge::Session,
        is_new: bool,
    ) -> Self {
        let progress = participant.progress.clone();
        let core = Core { connection, id: participant.session_id(), progress, closed: CancellationToken::new() };
        let opened_at = if is_new { None } else { session.position.map(Into::into) };
        let (participant, info) = (Some(participant), session.into());
        Self(Arc::new(Inner { core: Arc::new(core), participant, info, opened_at, over: Mutex::default() }))
    }

    /// The session's id.
    pub fn id(&self) -> &str {
        &self.0.core.id
    }

    /// The session when it was opened; for a handle, only its id. [`get`](Self::get) returns its current state.
    pub fn info(&self) -> &SessionInfo {
        &self.0.info
    }

    /// Id of this participant; empty for a handle. It changes after a [`ConnectionChange::Expired`].
    ///
    /// [`ConnectionChange::Expired`]: crate::ConnectionChange::Expired
    pub fn participant_id(&self) -> String {
        self.0.participant.as_ref().map(|participant| participant.participant_id()).unwrap_or_default()
    }

    /// The latest position that this program has seen.
    pub fn position(&self) -> Option<Position> {
        self.0.core.progress.last()
    }

    /// The reason why the participation is over; none while it continues.
    pub fn ended(&self) -> Option<Error> {
        let over = crate::lock(&self.0.over).clone();
        over.or_else(|| self.0.participant.as_ref().and_then(|participant| participant.line.ended()))
    }

    /// Waits until the participation is over and returns the reason.
    pub async fn wait_ended(&self) -> Error {
        match &self.0.participant {
            Some(participant) => participant.line.wait_ended().await,
            None => {
                self.0.core.closed.cancelled().await;
                Error::closed(self.id(), "closed")
            }
        }
    }

    /// Sends a prompt; the future returns when the CLI has accepted it.
    ///
    /// Dropping the future does not take a prompt back that the server has received.
    pub fn send(&self, prompt: impl Into<Prompt>) -> SendPrompt {
        SendPrompt { core: self.0.core.clone(), prompt: prompt.into(), timeout: None, request_id: None }
    }

    /// Sends a prompt; the future waits until the turn has ended. A turn that fails is an outcome, not an error.
    ///
    /// ```no_run
    /// # async fn example(session: copilot_grpc::Session) -> copilot_grpc::Result<()> {
    /// let outcome = session.send_and_wait("Hello").await?.error_for_status()?;
    /// println!("{}", outcome.text);
    /// # Ok(())
    /// # }
    /// ```
    pub fn send_and_wait(&self, prompt: impl Into<Prompt>) -> SendAndWait {
        SendAndWait {
            core: self.0.core.clone(),
            prompt: prompt.into(),
            idle_timeout: None,
            timeout: None,
            request_id: None,
            abort_on_drop: false,
        }
    }

    /// Prepares to send a prompt and to read its turn. Reading the turn sends the prompt.
    ///
    /// ```no_run
    /// # async fn example(session: copilot_grpc::Session) -> copilot_grpc::Result<()> {
    /// let mut turn = session.run("Hello");
    /// let mut deltas = turn.deltas();
    /// while let Some(text) = deltas.next().await {
    ///     print!("{}", text?);
    /// }
    /// let outcome = turn.outcome().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn run(&self, prompt: impl Into<Prompt>) -> Turn {
        Turn::new(self.0.core.clone(), prompt.into())
    }

    /// Stops the running turn and removes queued prompts. Returns whether a turn was running.
    pub async fn abort(&self) -> Result<bool> {
        self.0.core.abort().await
    }

    /// The session's events: past ones, then live ones, until the session or this participation is over.
    ///
    /// The stream continues after broken connections, without duplicates. Missing events appear as a gap. A slow reader
    /// delays nothing.
    ///
    /// ```no_run
    /// # async fn example(session: copilot_grpc::Session) -> copilot_grpc::Result<()> {
    /// use copilot_grpc::{Entry, Start};
    ///
    /// let mut events = session.events().start(Start::Beginning).types(["assistant.*"]).stream();
    /// while let Some(entry) = events.next().await {
    ///     match entry? {
    ///         Entry::Event(event) => println!("{} {}", event.position(), event.event_type()),
    ///         Entry::Gap(gap) => println!("missing up to {}", gap.through()),
    ///     }
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn events(&self) -> Subscribe {
        let opened_at = self.0.opened_at;
        let subscribe = Subscribe { cursor: self.0.core.cursor(None), opened_at, ephemeral_gaps: false };
        subscribe.start(Start::Opened)
    }

    /// The events that the journal has, from the first one or after a position, up to the last one.
    pub fn history(&self, after: Option<Position>, filter: bridge::EventFilter) -> Values<Entry> {
        let request = bridge::ListEventsRequest {
            session_id: self.id().to_owned(),
            after: after.map(Into::into),
            filter: Some(filter),
            ..Default::default()
        };
        let state = (self.0.core.clone(), Some(request), std::collections::VecDeque::new());
        Values::new(state, |(core, mut request, mut ready)| async move {
            loop {
                if let Some(entry) = ready.pop_front() {
                    return (Some(Ok(entry)), (core, request, ready));
                }
                let Some(mut next) = request.take() else { return (None, (core, None, ready)) };
                let page = core.repeat(|| {
                    let (mut sessions, request) = (core.connection.sessions(), next.clone());
                    async move { sessions.list_events(request).await }
                });
                let page = match page.await {
                    Ok(page) => page,
                    Err(error) => return (Some(Err(error)), (core, None, ready)),
                };
                ready.extend(page.gap.and_then(|gap| Entry::gap_of(gap, false)));
                ready.extend(page.events.into_iter().map(Entry::event_of));
                next.page_token = page.next_page_token;
                request = Some(next).filter(|next| !next.page_token.is_empty());
            }
        })
    }

    /// The whole JSON of an event, for one that was truncated.
    pub async fn read_event(&self, position: Position) -> Result<Vec<u8>> {
        let request = bridge::ReadEventRequest { session_id: self.id().to_owned(), position: Some(position.into()) };
        let mut stream = self.0.core.connection.sessions().read_event(request).await?.into_inner();
        let mut json = Vec::new();
        while let Some(piece) = stream.message().await? {
            json.extend(piece.json_chunk);
        }
        Ok(json)
    }

    /// Writes the session as an archive, from which [`Client::import_session`](crate::Client::import_session) makes a
    /// session on another server. No turn may run. The archive has the conversation, and no secrets of the configuration.
    ///
    /// What was written counts only if the method returns `Ok`: it compares the size and the digest at the end.
    ///
    /// ```no_run
    /// # async fn example(session: copilot_grpc::Session) -> Result<(), Box<dyn std::error::Error>> {
    /// session.export_to(tokio::fs::File::create_new("session.tar.gz").await?).await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn export_to(&self, writer: impl AsyncWrite) -> Result<bridge::ExportSessionHeader> {
        transfer::export(&self.0.core.connection, self.id(), writer).await
    }

    /// The session's current state.
    pub async fn get(&self) -> Result<SessionInfo> {
        let core = &self.0.core;
        let request = bridge::GetSessionRequest { session_id: self.id().to_owned(), ..Default::default() };
        let reply = core.repeat(method!(core.connection, sessions.get_session(request)));
        Ok(reply.await?.session.unwrap_or_default().into())
    }

    /// Changes the model from the next turn on. Returns the model in use, if the CLI reports it.
    pub async fn set_model(&self, model_id: impl Into<String>) -> Result<String> {
        self.set_model_with(bridge::SetModelRequest { model_id: model_id.into(), ..Default::default() }).await
    }

    /// As [`set_model`](Self::set_model), with all options. The request's session is this one.
    pub async fn set_model_with(&self, mut request: bridge::SetModelRequest) -> Result<String> {
        request.session_id = self.id().to_owned();
        let core = &self.0.core;
        Ok(core.call(method!(core.connection, sessions.set_model(request))).await?.model_id)
    }

    /// Adds or replaces labels and removes others. Returns all labels of the session.
    pub async fn update_labels<K: Into<String>, V: Into<String>, R: Into<String>>(
        &self,
        set: impl IntoIterator<Item = (K, V)>,
        remove: impl IntoIterator<Item = R>,
    ) -> Result<HashMap<String, String>> {
        let request = bridge::UpdateLabelsRequest {
            session_id: self.id().to_owned(),
            set: set.into_iter().map(|(name, value)| (name.into(), value.into())).collect(),
            remove: remove.into_iter().map(Into::into).collect(),
        };
        let core = &self.0.core;
        let reply = core.repeat(method!(core.connection, sessions.update_labels(request))).await?;
        Ok(reply.session.unwrap_or_default().labels)
    }

    /// Writes a line to the session's timeline, for its users, not for the model. Returns the event's id.
    pub async fn log(&self, message: impl Into<String>, level: cli::SessionLogLevel) -> Result<String> {
        let request = bridge::WriteLogRequest {
            session_id: self.id().to_owned(),
            message: message.into(),
            level: level.into(),
            ..Default::default()
        };
        let core = &self.0.core;
        Ok(core.call(method!(core.connection, sessions.write_log(request))).await?.event_id)
    }

    /// Changes fields of the model provider from the next turn on: those named, or all with a value.
    pub async fn update_provider(&self, provider: cli::ProviderConfig, fields: &[&str]) -> Result<()> {
        let paths = fields.iter().map(|field| (*field).to_owned()).collect();
        let request = bridge::UpdateProviderRequest {
            session_id: self.id().to_owned(),
            provider: Some(provider),
            update_mask: Some(prost_types::FieldMask { paths }),
            ..Default::default()
        };
        let core = &self.0.core;
        core.call(method!(core.connection, sessions.update_provider(request))).await.map(|_| ())
    }

    /// Sets secrets that the server lost in a restart: of the provider, or a GitHub token.
    pub async fn provide_credentials(
        &self,
        provider: Option<cli::ProviderConfig>,
        github_token: Option<String>,
    ) -> Result<()> {
        let github_token = github_token.unwrap_or_default();
        let request = bridge::ProvideCredentialsRequest { session_id: self.id().to_owned(), provider, github_token };
        let core = &self.0.core;
        core.call(method!(core.connection, sessions.provide_credentials(request))).await.map(|_| ())
    }

    /// The pending callbacks, oldest first.
    pub async fn pending(&self) -> Result<Vec<PendingCallback>> {
        let core = &self.0.core;
        crate::inbox::pending(&core.connection, Some(&core.progress), core.id.clone()).await
    }

    /// Answers any callback of the session by its id. [`answers`](crate::answers) makes answers.
    pub async fn resolve(&self, callback_id: impl Into<String>, answer: bridge::Answer) -> Result<()> {
        let core = &self.0.core;
        let request = bridge::ResolveRequest {
            session_id: self.id().to_owned(),
            callback_id: callback_id.into(),
            answer: Some(answer),
            request_id: crate::new_id(),
        };
        let reply = core.repeat(method!(core.connection, callbacks.resolve(request)));
        reply.await.map(|_| ())
    }

    /// Replaces this participant's tools. Running calls continue.
    pub async fn set_tools(&self, tools: impl IntoIterator<Item = Tool>) -> Result<()> {
        let Some(participant) = &self.0.participant else {
            return Err(Error::invalid("tools", "a handle has no tools: join the session"));
        };
        let tools: Vec<_> = tools.into_iter().collect();
        crate::tool::check(&tools)?;
        participant.set_tools(&tools).await
    }

    /// Leaves the session: its tools go, its handlers are cancelled, its event streams end. The session continues
    /// unless its lifetime ends with its last participant. Closing again does nothing.
    pub async fn close(&self) {
        self.end(false).await;
    }

    /// Leaves the session and closes it in the server, unless other participants are attached: its turn is aborted, and
    /// only [`Client::resume_session`](crate::Client::resume_session) opens it again. Its history stays.
    pub async fn disconnect(&self) -> Result<()> {
        if let Some(participant) = self.0.participant.as_ref().filter(|_| self.ended().is_none()) {
            participant.line.live().await?; // a participant whose stream is broken still counts
            self.end(true).await;
            return Ok(());
        }
        let request = bridge::DisconnectSessionRequest { session_id: self.id().to_owned(), force: false };
        let core = &self.0.core;
        core.call(method!(core.connection, sessions.disconnect_session(request))).await?;
        self.end(false).await;
        Ok(())
    }

    /// Deletes the session and its history.
    pub async fn delete(&self) -> Result<()> {
        let request = bridge::DeleteSessionRequest { session_id: self.id().to_owned(), ..Default::default() };
        let core = &self.0.core;
        core.call(method!(core.connection, sessions.delete_session(request))).await?;
        self.end(false).await;
        Ok(())
    }

    async fn end(&self, disconnect: bool) {
        crate::lock(&self.0.over).get_or_insert_with(|| Error::closed(self.id(), "closed"));
        self.0.core.closed.cancel();
        if let Some(participant) = &self.0.participant {
            participant.leave(disconnect).await;
        }
    }
}

impl std::fmt::Debug for Session {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Session({})", self.id())
    }
}

pub(crate) fn request_id_or_new(id: Option<String>) -> String {
    id.filter(|id| !id.is_empty()).unwrap_or_else(crate::new_id)
}
