//! The participation of this program in a session: one Attach stream after another.

use std::collections::HashMap;
use std::panic::AssertUnwindSafe;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::bridge::v1 as bridge;
use crate::bridge::v1::attach_request::Frame as Request;
use crate::bridge::v1::attach_response::Frame as Response;
use crate::bridge::v1::subscribe_response::Frame;
use crate::calls::Calls;
use crate::connection::Connection;
use crate::error::{Error, Reason, Result};
use crate::handlers::{Handlers, panic_text};
use crate::link::{HEARTBEAT, Line, Link, SILENCE, Wire};
use crate::membership::{ConnectionChange, Membership, closed_by};
use crate::model::Models;
use crate::open::Plan;
use crate::position::Progress;
use crate::retry::Backoff;
use crate::tool::Tool;

/// Attempts to resume or to create a session while other callers create and delete it.
const MAX_ATTEMPTS: usize = 10;
/// The longest pause before a session is resumed again.
const MAX_PAUSE: Duration = Duration::from_millis(100);

/// Keeps the participation alive: opens streams, reads frames, and hands callbacks to `Calls`.
pub(crate) struct Participant {
    connection: Arc<Connection>,
    options: Membership,
    handlers: Arc<Handlers>,
    models: Option<Arc<Models>>,
    calls: Arc<Calls>,
    pub(crate) line: Arc<Line>,
    pub(crate) progress: Arc<Progress>,
    identity: Mutex<Identity>,
    commands: Mutex<HashMap<String, oneshot::Sender<Option<Error>>>>,
    setting_tools: tokio::sync::Mutex<()>,
    leaving: CancellationToken,
    /// The end of the time to leave; set before `leaving`.
    leave_by: OnceLock<Instant>,
    disconnecting: AtomicBool,
}

#[derive(Clone, Default)]
struct Identity {
    session_id: String,
    participant_id: String,
    token: String,
}

/// What a frame means for its stream.
enum Next {
    Read,
    Reconnect,
    End(Error),
}

impl Participant {
    /// Opens the first stream and starts the task that serves it. Returns also whether it created the session.
    pub(crate) async fn open(
        connection: Arc<Connection>,
        options: Membership,
        handlers: Handlers,
        models: Option<Arc<Models>>,
        plan: Plan,
    ) -> Result<(Arc<Self>, bridge::AttachStarted, bool)> {
        let (handlers, line) = (Arc::new(handlers), Arc::new(Line::new()));
        if let Some(models) = &models {
            models.bind(line.clone());
        }
        let calls = Calls::new(handlers.clone(), line.clone(), connection.clone(), options.max_tools);
        let participant = Self {
            connection,
            options,
            handlers,
            models,
            calls,
            line,
            progress: Arc::default(),
            identity: Mutex::default(),
            commands: Mutex::default(),
            setting_tools: tokio::sync::Mutex::default(),
            leaving: CancellationToken::new(),
            leave_by: OnceLock::new(),
            disconnecting: AtomicBool::new(false),
        };
        let participant = Arc::new(participant);
        let mut closing = Closing { participant: participant.clone(), is_serving: false };
        let (wire, started, is_new) = participant.first(&plan).await?;
        participant.adopt(&wire.link, &started);
        closing.is_serving = true;
        tokio::spawn(participant.clone().run(wire, closing));
        Ok((participant, started, is_new))
    }

    /// Opens the first stream. A session that is resumed or created is tried both ways, because other callers may create
    /// or delete it meanwhile. The request id in the first frame makes each attempt safe to repeat.
    async fn first(&self, plan: &Plan) -> Result<(Wire, bridge::AttachStarted, bool)> {
        let policy = self.connection.reconnect.of_calls();
        let mut creates = plan.creates();
        let mut attempt = 1;
        loop {
            self.forget();
            let start = self.start(plan.message(creates));
            match self.connection.repeat_with(policy, || self.dial(start.clone())).await {
                Err(error) if attempt < MAX_ATTEMPTS && plan.has_other_way(creates, &error) => {
                    if creates {
                        // Two callers whose attempts alternate must get out of step.
                        tokio::time::sleep(MAX_PAUSE.mul_f64(fastrand::f64())).await;
                    }
                    creates = !creates;
                    attempt += 1;
                }
                opened => return opened.map(|(wire, started)| (wire, started, creates)),
            }
        }
    }

    pub(crate) fn session_id(&self) -> String {
        crate::lock(&self.identity).session_id.clone()
    }

    pub(crate) fn participant_id(&self) -> String {
        crate::lock(&self.identity).participant_id.clone()
    }

    /// Starts to end the participation, without waiting for it.
    pub(crate) fn leave_soon(&self) {
        self.leave_deadline();
        self.leaving.cancel();
    }

    /// Ends the participation: on its stream, or by a call if the stream is broken, within the time to leave.
    pub(crate) async fn leave(&self, disconnect: bool) {
        self.disconnecting.store(disconnect, Ordering::Relaxed);
        self.leave_soon();
        self.line.wait_ended().await;
    }

    fn leave_deadline(&self) -> Instant {
        *self.leave_by.get_or_init(|| Instant::now() + self.connection.close_timeout)
    }

    /// Replaces the participant's tools, here and on the server.
    pub(crate) async fn set_tools(&self, tools: &[Tool]) -> Result<()> {
        let _one = self.setting_tools.lock().await;
        let before = self.handlers.set_tools(tools);
        let command = bridge::SetToolsCommand { tools: self.handlers.declared_tools(false) };
        let result = self.command(bridge::attach_command::Command::SetTools(Box::new(command))).await;
        if result.is_err() {
            self.handlers.restore_tools(before);
        }
        result
    }

    /// Sends a command and waits for its reply. If the stream breaks, the next one starts with what was to be set.
    async fn command(&self, command: bridge::attach_command::Command) -> Result<()> {
        let link = self.line.live().await?;
        let id = crate::new_id();
        let (reply, replied) = oneshot::channel();
        crate::lock(&self.commands).insert(id.clone(), reply);
        let message = bridge::AttachCommand { command_id: id.clone(), command: Some(command), ..Default::default() };
        let failure = if link.send(Request::Command(Box::new(message))).await {
            tokio::select! {
                biased;
                failure = replied => failure.ok().flatten(),
                () = link.down.cancelled() => None,
            }
        } else {
            None
        };
        crate::lock(&self.commands).remove(&id);
        match failure {
            Some(failure) => Err(failure),
            None => self.line.live().await.map(|_| ()),
        }
    }

    /// The first frame of a stream.
    fn start(&self, session: bridge::attach_start::Session) -> bridge::AttachStart {
        let options = &self.options;
        bridge::AttachStart {
            session: Some(session),
            name: options.name.clone().unwrap_or_else(|| self.connection.name.clone()),
            participant_token: crate::lock(&self.identity).token.clone(),
            tools: self.handlers.declared_tools(false),
            handlers: Some(self.handlers.announced()),
            grace: options.grace.and_then(|grace| grace.try_into().ok()),
            after: self.progress.last().map(Into::into),
            start: bridge::StreamStart::End.into(),
            // Events have streams of their own.
            filter: Some(bridge::EventFilter { exclude_all: true, ..Default::default() }),
            options: Some(bridge::StreamOptions {
                heartbeat_interval: HEARTBEAT.try_into().ok(),
                ..Default::default()
            }),
            canvases: options.canvases.clone(),
            canvas_provider: options.canvas_provider.clone(),
            extension_info: options.extension_info.clone(),
            commands: options.commands.clone(),
            exact: false,
        }
    }

    async fn dial(&self, start: bridge::AttachStart) -> Result<(Wire, bridge::AttachStarted)> {
        let mut wire = Wire::open(&self.connection, start).await?;
        loop {
            match wire.read().await?.frame {
                Some(Response::Started(started)) => return Ok((wire, *started)),
                Some(Response::Opening(opening)) => self.opening(&wire.link, *opening),
                Some(Response::Progress(progress)) => {
                    tracing::info!(detail = progress.detail, "waiting for the server")
                }
                frame => match self.take(frame) {
                    Next::Read => {}
                    Next::Reconnect => return Err(Error::lost("the server asks to reconnect")),
                    Next::End(error) => return Err(error),
                },
            }
        }
    }

    /// The server needs answers to open the session.
    fn opening(&self, link: &Link, opening: bridge::AttachOpening) {
        *crate::lock(&self.identity) = Identity {
            session_id: opening.session_id,
            participant_id: opening.participant_id,
            token: opening.participant_token,
        };
        self.line.set(link);
    }

    fn adopt(&self, link: &Link, started: &bridge::AttachStarted) {
        let session = started.session.as_ref();
        {
            let mut identity = crate::lock(&self.identity);
            if let Some(session) = session {
                identity.session_id.clone_from(&session.session_id);
            }
            identity.participant_id.clone_from(&started.participant_id);
            identity.token.clone_from(&started.participant_token);
        }
        self.progress.note(session.and_then(|session| session.position));
        self.line.set(link);
    }

    /// Serves one stream after another until the participation is over.
    async fn run(self: Arc<Self>, mut wire: Wire, _closing: Closing) {
        let error = loop {
            let cause = self.serve(&mut wire).await;
            wire.link.down.cancel();
            if self.leaving.is_cancelled() {
                if cause.is_none_or(|cause| cause.reason() != Reason::SessionClosed) {
                    self.leave_by_call().await;
                }
                break Error::closed(&self.session_id(), "closed");
            }
            let mut backoff = Backoff::new(self.connection.reconnect);
            if let Some(cause) = &cause {
                if !self.connection.may_help(&mut backoff, cause).await {
                    break cause.clone();
                }
                tracing::warn!(session_id = self.session_id(), error = %cause, "attach stream broken");
                self.tell(ConnectionChange::Disconnected(cause.clone()));
            }
            let reopened = tokio::select! {
                biased;
                () = self.may_leave_by_call() => {
                    self.leave_by_call().await;
                    Err(Error::closed(&self.session_id(), "closed"))
                }
                reopened = self.reopen(backoff, cause) => reopened,
            };
            // The old stream is closed only now.
            match reopened {
                Ok(next) => wire = next,
                Err(error) => break error,
            }
        };
        self.line.end(error);
    }

    /// Reads a stream until it ends. Returns none if the server asks for a new one.
    async fn serve(&self, wire: &mut Wire) -> Option<Error> {
        let mut leave_by = None;
        let mut leaving = std::pin::pin!(self.leaving.cancelled());
        loop {
            let frame = tokio::select! {
                () = &mut leaving, if leave_by.is_none() => {
                    let leave = bridge::AttachLeave { disconnect: self.disconnecting.load(Ordering::Relaxed) };
                    wire.link.send(Request::Leave(Box::new(leave))).await;
                    leave_by = Some(self.leave_deadline());
                    continue;
                }
                () = at(leave_by) => return Some(Error::lost("the server does not reply")),
                frame = wire.read() => frame,
            };
            match frame {
                Ok(frame) => match self.take(frame.frame) {
                    Next::Read => {}
                    Next::Reconnect => return None,
                    Next::End(error) => return Some(error),
                },
                Err(error) => return Some(error),
            }
        }
    }

    /// Opens a stream in place of an earlier one.
    async fn reopen(&self, mut backoff: Backoff, cause: Option<Error>) -> Result<Wire> {
        let mut failure = cause.clone().unwrap_or_else(|| Error::lost("the server asks to reconnect"));
        while backoff.wait(&failure).await {
            let session = bridge::attach_start::Session::JoinSessionId(self.session_id());
            let dialed = tokio::time::timeout(SILENCE, self.dial(self.start(session))).await;
            match dialed.unwrap_or_else(|_| Err(Error::lost("the server does not reply"))) {
                Ok((wire, started)) => {
                    self.adopt(&wire.link, &started);
                    tracing::info!(session_id = self.session_id(), "attach stream restored");
                    self.tell(ConnectionChange::Reconnected { participant_id: self.participant_id() });
                    return Ok(wire);
                }
                Err(error) if error.reason() == Reason::ParticipantNotFound && self.forget() => {
                    self.tell(ConnectionChange::Expired { participant_id: self.participant_id() });
                }
                Err(error) if !self.connection.may_help(&mut backoff, &error).await => return Err(error),
                Err(error) => failure = error,
            }
        }
        Err(cause.unwrap_or(failure))
    }

    /// Forgets the participant's token. Returns false if there is none.
    fn forget(&self) -> bool {
        !std::mem::take(&mut crate::lock(&self.identity).token).is_empty()
    }

    /// Waits until the program leaves. A participant whose token the server has not sent yet can leave only on a stream:
    /// for it the method also waits until the time to leave is over.
    async fn may_leave_by_call(&self) {
        self.leaving.cancelled().await;
        if self.leave_request().is_none() {
            tokio::time::sleep_until(self.leave_deadline()).await;
        }
    }

    /// Leaves by a call, because there is no stream to leave on. Tries until the time to leave is over.
    async fn leave_by_call(&self) {
        if let Some(request) = self.leave_request() {
            let left = tokio::time::timeout_at(self.leave_deadline(), self.connection.leave(request)).await;
            self.note_left(left.unwrap_or_else(|_| Err(Error::lost("the server does not reply"))));
        }
    }

    /// Leaves when the program's runtime shuts down. Blocks the thread until then, at most until the time to leave of the
    /// client's participants is over.
    ///
    /// The task that serves the participant may have called Leave before, and the runtime dropped it before the reply. The
    /// client cannot know whether the server has received that call, so it calls again: otherwise the participant's tools
    /// could stay for the grace time. The server answers a repeated Leave without an effect.
    fn leave_at_shutdown(&self) {
        if let Some(request) = self.leave_request().filter(|_| self.connection.server.is_none()) {
            self.note_left(self.connection.leave_at_shutdown(request));
        }
    }

    /// The request to leave; none if the server has sent no token.
    fn leave_request(&self) -> Option<bridge::LeaveRequest> {
        let Identity { session_id, token, .. } = crate::lock(&self.identity).clone();
        (!token.is_empty()).then_some(bridge::LeaveRequest { session_id, participant_token: token })
    }

    fn note_left(&self, result: Result<()>) {
        match result {
            Err(error) if !matches!(error.reason(), Reason::ParticipantNotFound | Reason::SessionNotFound) => {
                tracing::warn!(session_id = self.session_id(), %error, "participant not left: it stays for its grace time");
            }
            _ => {}
        }
    }

    fn tell(&self, change: ConnectionChange) {
        if let Some(listener) = &self.options.listener
            && let Err(panic) = std::panic::catch_unwind(AssertUnwindSafe(|| listener(change)))
        {
            crate::trace::handler_failed(&self.session_id(), "", "on_connection", &panic_text(&*panic));
        }
    }

    // Frames. Nothing here waits.

    fn take(&self, frame: Option<Response>) -> Next {
        match frame {
            Some(Response::Stream(frame)) => return self.take_stream(*frame),
            Some(Response::Done(done)) => {
                self.progress.note(done.position);
                match done.subject {
                    Some(bridge::attach_done::Subject::CallbackId(id)) => self.calls.settle(&id, None),
                    Some(bridge::attach_done::Subject::CommandId(id)) => self.replied(&id, None),
                    None => {}
                }
            }
            Some(Response::Failed(failed)) => {
                let failure = Error::of_failure(failed.failure.unwrap_or_default());
                match failed.subject {
                    Some(bridge::attach_failed::Subject::CallbackId(id)) => self.calls.settle(&id, Some(failure)),
                    Some(bridge::attach_failed::Subject::CommandId(id)) => self.replied(&id, Some(failure)),
                    Some(bridge::attach_failed::Subject::ModelRequestId(id)) => {
                        if let Some(models) = &self.models {
                            models.end(&id);
                        }
                    }
                    None => {}
                }
            }
            Some(Response::Started(_) | Response::Opening(_) | Response::Progress(_)) | None => {}
        }
        Next::Read
    }

    fn replied(&self, command_id: &str, failure: Option<Error>) {
        if let Some(waiting) = crate::lock(&self.commands).remove(command_id) {
            let _ = waiting.send(failure);
        }
    }

    fn take_stream(&self, frame: bridge::SubscribeResponse) -> Next {
        self.progress.note(frame.resume_after);
        match frame.frame {
            Some(Frame::Started(started)) => {
                self.calls.reconcile(started.pending_callbacks, &self.participant_id());
            }
            Some(Frame::Gap(gap)) => self.calls.reconcile(gap.pending_callbacks, &self.participant_id()),
            Some(Frame::CallbackRequested(requested)) => {
                if let Some(callback) = requested.callback {
                    self.calls.ask(callback, requested.offered);
                }
            }
            Some(Frame::CallbackResolved(resolved)) => self.calls.withdraw(&resolved.callback_id),
            Some(Frame::RuntimeRestarted(restarted)) => {
                tracing::warn!(session_id = self.session_id(), cause = restarted.cause, "runtime restarted");
            }
            Some(Frame::GoAway(_)) => return Next::Reconnect,
            Some(Frame::Closed(closed)) => return Next::End(closed_by(&self.session_id(), closed.reason())),
            _ => {}
        }
        Next::Read
    }
}

/// Sleeps until a time; for ever without one.
async fn at(time: Option<Instant>) {
    match time {
        Some(time) => tokio::time::sleep_until(time).await,
        None => std::future::pending().await,
    }
}

/// Ends everything that belongs to a participation with the task that serves it, or with the attempt to open it.
struct Closing {
    participant: Arc<Participant>,
    /// The participation is open; only the end of the program's runtime drops its task early.
    is_serving: bool,
}

impl Drop for Closing {
    fn drop(&mut self) {
        let participant = &self.participant;
        participant.calls.close();
        if let Some(models) = &participant.models {
            models.close();
        }
        if participant.line.ended().is_some() {
            return;
        }
        participant.line.end(Error::closed(&participant.session_id(), "closed"));
        if self.is_serving {
            participant.leave_at_shutdown();
        } else if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            let participant = participant.clone();
            runtime.spawn(async move { participant.leave_by_call().await });
        }
    }
}
