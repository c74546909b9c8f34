//! Turns: a prompt and what the agent makes of it.

use std::collections::{HashSet, VecDeque};
use std::fmt;
use std::future::{Future, IntoFuture};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use futures_core::Stream;
use tonic::Streaming;

use crate::bridge::v1 as bridge;
use crate::bridge::v1::run_response::Frame;
use crate::cli::v1::session_event::Data;
use crate::error::{Error, Result};
use crate::events::{Cursor, Entry, Values, audible, entries, silence_of};
use crate::position::Position;
use crate::prompt::Prompt;
use crate::retry::{Backoff, repeat};
use crate::session::{Core, request_id_or_new};

const ABORT_TIMEOUT: Duration = Duration::from_secs(5);

/// How a turn ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum TurnStatus {
    /// The agent finished.
    Completed,
    /// A caller aborted the turn.
    Aborted,
    /// The model or the CLI failed.
    Failed,
    /// The turn had no event for the stall timeout, and nothing was outstanding.
    Stalled,
    /// The CLI process ended during the turn.
    RuntimeLost,
    /// Only the wait ended; the turn continues.
    TimedOut,
    /// A status that is newer than this library.
    Unknown,
}

impl fmt::Display for TurnStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Completed => "completed",
            Self::Aborted => "aborted",
            Self::Failed => "failed",
            Self::Stalled => "stalled",
            Self::RuntimeLost => "runtime lost",
            Self::TimedOut => "timed out",
            Self::Unknown => "unknown",
        })
    }
}

/// The end of a turn. A turn that fails is an outcome, not an [`Error`].
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Outcome {
    /// How the turn ended.
    pub status: TurnStatus,
    /// The agent's last message; empty if there is none.
    pub text: String,
    /// Id of the prompt.
    pub message_id: String,
    /// The error of a failed turn.
    pub error: Option<bridge::TurnError>,
    /// Position of the agent's last message.
    pub message_position: Option<Position>,
    /// Position of the turn's end; none if the turn continues.
    pub end_position: Option<Position>,
}

impl Outcome {
    fn of(message_id: String, outcome: bridge::TurnOutcome) -> Self {
        let status = match outcome.status() {
            bridge::TurnStatus::Completed => TurnStatus::Completed,
            bridge::TurnStatus::Aborted => TurnStatus::Aborted,
            bridge::TurnStatus::Failed => TurnStatus::Failed,
            bridge::TurnStatus::Stalled => TurnStatus::Stalled,
            bridge::TurnStatus::RuntimeLost => TurnStatus::RuntimeLost,
            bridge::TurnStatus::TimedOut => TurnStatus::TimedOut,
            bridge::TurnStatus::Unspecified => TurnStatus::Unknown,
        };
        Self {
            status,
            text: outcome.text,
            message_id,
            error: outcome.error,
            message_position: outcome.message_position.map(Into::into),
            end_position: outcome.end_position.map(Into::into),
        }
    }

    /// Whether the turn completed.
    pub fn is_completed(&self) -> bool {
        self.status == TurnStatus::Completed
    }

    /// Turns an outcome other than [`TurnStatus::Completed`] into an error with [`Reason::TurnFailed`].
    ///
    /// [`Reason::TurnFailed`]: crate::Reason::TurnFailed
    pub fn error_for_status(self) -> Result<Self> {
        if self.is_completed() { Ok(self) } else { Err(Error::turn_failed(self)) }
    }
}

/// Sends a prompt and waits for the end of its turn; `await` it. See [`Session::send_and_wait`].
///
/// Dropping the future ends the wait. The turn continues in the server unless [`abort_on_drop`](Self::abort_on_drop) is
/// set.
///
/// [`Session::send_and_wait`]: crate::Session::send_and_wait
#[must_use = "futures do nothing unless awaited"]
pub struct SendAndWait {
    pub(crate) core: Arc<Core>,
    pub(crate) prompt: Prompt,
    pub(crate) idle_timeout: Option<Duration>,
    pub(crate) timeout: Option<Duration>,
    pub(crate) request_id: Option<String>,
    pub(crate) abort_on_drop: bool,
}

impl SendAndWait {
    /// Time without an event after which the outcome is [`TurnStatus::TimedOut`]. Time in which a tool, a callback or
    /// a shell runs does not count.
    pub fn idle_timeout(mut self, limit: Duration) -> Self {
        self.idle_timeout = Some(limit);
        self
    }

    /// Time after which the outcome is [`TurnStatus::TimedOut`]. The turn continues.
    pub fn timeout(mut self, limit: Duration) -> Self {
        self.timeout = Some(limit);
        self
    }

    /// Makes the call idempotent across restarts of this program; default: a random id.
    pub fn request_id(mut self, id: impl Into<String>) -> Self {
        self.request_id = Some(id.into());
        self
    }

    /// Stops the turn if the future is dropped before the turn has ended.
    pub fn abort_on_drop(mut self) -> Self {
        self.abort_on_drop = true;
        self
    }

    async fn wait(self) -> Result<Outcome> {
        let limit = |limit: Option<Duration>| limit.and_then(|limit| limit.try_into().ok());
        let request = bridge::SendAndWaitRequest {
            request_id: request_id_or_new(self.request_id),
            session_id: self.core.id.clone(),
            prompt: Some(self.prompt.message().await?),
            idle_timeout: limit(self.idle_timeout),
            timeout: limit(self.timeout),
        };
        let guard = self.abort_on_drop.then(|| AbortGuard(Some(self.core.clone())));
        let connection = &self.core.connection;
        let reply = repeat(connection.reconnect, || async {
            let reply = connection.sessions().send_and_wait(request.clone()).await?;
            self.core.progress.note_trailers(reply.metadata());
            Ok(reply.into_inner())
        })
        .await;
        if let Some(mut guard) = guard {
            guard.0 = None;
        }
        let reply = reply?;
        let outcome = Outcome::of(reply.message_id, reply.outcome.unwrap_or_default());
        self.core.progress.note(outcome.end_position);
        Ok(outcome)
    }
}

impl IntoFuture for SendAndWait {
    type Output = Result<Outcome>;
    type IntoFuture = Pin<Box<dyn Future<Output = Result<Outcome>> + Send>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.wait())
    }
}

/// Aborts the session's turn when it is dropped, in a task that ends after a short time.
struct AbortGuard(Option<Arc<Core>>);

impl Drop for AbortGuard {
    fn drop(&mut self) {
        let (Some(core), Ok(runtime)) = (self.0.take(), tokio::runtime::Handle::try_current()) else { return };
        runtime.spawn(async move {
            if !matches!(tokio::time::timeout(ABORT_TIMEOUT, core.abort()).await, Ok(Ok(_))) {
                tracing::warn!(session_id = core.id, "turn not aborted");
            }
        });
    }
}

/// A turn that is read while it happens: a `Stream` of its events. See [`Session::run`](crate::Session::run).
///
/// Reading sends the prompt, once, however often the stream breaks. Dropping the turn ends the reading; the turn
/// continues in the server unless [`abort_on_drop`](Self::abort_on_drop) is set.
#[must_use = "reading the turn sends the prompt"]
pub struct Turn {
    setup: Option<Box<Setup>>,
    steps: Option<Values<Step>>,
    outcome: Option<Outcome>,
    guard: Option<AbortGuard>,
}

struct Setup {
    core: Arc<Core>,
    prompt: Prompt,
    filter: Option<bridge::EventFilter>,
    options: Option<bridge::StreamOptions>,
    request_id: Option<String>,
    abort_on_drop: bool,
}

enum Step {
    Entry(Entry),
    Outcome(Box<Outcome>),
}

impl Turn {
    pub(crate) fn new(core: Arc<Core>, prompt: Prompt) -> Self {
        let setup = Setup { core, prompt, filter: None, options: None, request_id: None, abort_on_drop: false };
        Self { setup: Some(Box::new(setup)), steps: None, outcome: None, guard: None }
    }

    fn set(mut self, change: impl FnOnce(&mut Setup)) -> Self {
        if let Some(setup) = &mut self.setup {
            change(setup);
        }
        self
    }

    /// Events to read; default: all except the large types.
    pub fn filter(self, filter: bridge::EventFilter) -> Self {
        self.set(|setup| setup.filter = Some(filter))
    }

    /// Fidelity, original JSON and other options of the events.
    pub fn options(self, options: bridge::StreamOptions) -> Self {
        self.set(|setup| setup.options = Some(options))
    }

    /// Makes the send idempotent across restarts of this program; default: a random id.
    pub fn request_id(self, id: impl Into<String>) -> Self {
        self.set(|setup| setup.request_id = Some(id.into()))
    }

    /// Stops the turn if it is dropped before it has ended.
    pub fn abort_on_drop(self) -> Self {
        self.set(|setup| setup.abort_on_drop = true)
    }

    /// The next event; none at the end of the turn.
    pub async fn next(&mut self) -> Option<Result<Entry>> {
        std::future::poll_fn(|cx| Pin::new(&mut *self).poll_next(cx)).await
    }

    /// The agent's text as it arrives, in pieces. A message that was not streamed is one piece.
    pub fn deltas(&mut self) -> Deltas<'_> {
        Deltas { turn: self, streamed: HashSet::new() }
    }

    /// The end of the turn. Reads the rest of the turn.
    pub async fn outcome(mut self) -> Result<Outcome> {
        while let Some(entry) = self.next().await {
            entry?;
        }
        self.outcome.take().ok_or_else(|| Error::lost("the turn was not read to its end"))
    }

    fn open(&mut self) -> Option<&mut Values<Step>> {
        if let Some(setup) = self.setup.take() {
            self.guard = setup.abort_on_drop.then(|| AbortGuard(Some(setup.core.clone())));
            let next = |mut reader: Reader| async move { (reader.next().await, reader) };
            self.steps = Some(Values::new(Reader::new(*setup), next));
        }
        self.steps.as_mut()
    }
}

impl IntoFuture for Turn {
    type Output = Result<Outcome>;
    type IntoFuture = Pin<Box<dyn Future<Output = Result<Outcome>> + Send>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.outcome())
    }
}

impl Stream for Turn {
    type Item = Result<Entry>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Entry>>> {
        let Some(steps) = self.open() else { return Poll::Ready(None) };
        let step = ready!(Pin::new(steps).poll_next(cx));
        Poll::Ready(match step {
            Some(Ok(Step::Entry(entry))) => Some(Ok(entry)),
            Some(Ok(Step::Outcome(outcome))) => {
                (self.outcome, self.steps) = (Some(*outcome), None);
                if let Some(mut guard) = self.guard.take() {
                    guard.0 = None;
                }
                None
            }
            Some(Err(error)) => Some(Err(error)),
            None => None,
        })
    }
}

/// The agent's text in pieces; see [`Turn::deltas`].
pub struct Deltas<'a> {
    turn: &'a mut Turn,
    streamed: HashSet<String>,
}

impl Deltas<'_> {
    /// The next piece; none at the end of the turn.
    pub async fn next(&mut self) -> Option<Result<String>> {
        std::future::poll_fn(|cx| Pin::new(&mut *self).poll_next(cx)).await
    }

    fn piece(&mut self, entry: Entry) -> Option<String> {
        let Entry::Event(event) = entry else { return None };
        if event.agent_id().is_some() {
            return None; // only the session's own agent
        }
        match event.message.event?.data? {
            Data::AssistantMessageDelta(delta) => {
                self.streamed.insert(delta.message_id);
                Some(delta.delta_content)
            }
            Data::AssistantMessage(message) if !self.streamed.contains(&message.message_id) => Some(message.content),
            _ => None,
        }
    }
}

impl Stream for Deltas<'_> {
    type Item = Result<String>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<String>>> {
        loop {
            match ready!(Pin::new(&mut *self.turn).poll_next(cx)) {
                Some(Ok(entry)) => match self.piece(entry).filter(|piece| !piece.is_empty()) {
                    Some(piece) => return Poll::Ready(Some(Ok(piece))),
                    None => continue,
                },
                Some(Err(error)) => return Poll::Ready(Some(Err(error))),
                None => return Poll::Ready(None),
            }
        }
    }
}

/// Reads a turn over one Run stream after another.
struct Reader {
    setup: Setup,
    request: Option<bridge::RunRequest>,
    cursor: Cursor,
    stream: Option<Streaming<bridge::RunResponse>>,
    backoff: Backoff,
    message_id: String,
    entries: VecDeque<Entry>,
    ended: bool,
}

impl Reader {
    fn new(setup: Setup) -> Self {
        let cursor = setup.core.cursor(None);
        let backoff = Backoff::new(setup.core.connection.reconnect);
        Self {
            setup,
            request: None,
            cursor,
            stream: None,
            backoff,
            message_id: String::new(),
            entries: VecDeque::new(),
            ended: false,
        }
    }

    async fn next(&mut self) -> Option<Result<Step>> {
        loop {
            if let Some(entry) = self.entries.pop_front() {
                return Some(Ok(Step::Entry(entry)));
            }
            if self.ended {
                return None;
            }
            match self.read().await {
                Ok(Some(outcome)) => {
                    self.ended = true;
                    return Some(Ok(Step::Outcome(Box::new(outcome))));
                }
                Ok(None) => {}
                Err(error) => return Some(Err(error)),
            }
        }
    }

    /// Reads a frame. Returns the outcome if it is the last one.
    async fn read(&mut self) -> Result<Option<Outcome>> {
        let cause = match self.read_stream().await {
            Ok(Some(frame)) => {
                self.backoff.reset();
                match self.take(frame) {
                    Some(taken) => return Ok(taken),
                    None => Error::lost("the server asks to reconnect"),
                }
            }
            Ok(None) => Error::lost("the server ended the turn's stream without an outcome"),
            Err(error) => error,
        };
        self.stream = None;
        if self.setup.core.connection.may_reopen(&mut self.backoff, &cause).await { Ok(None) } else { Err(cause) }
    }

    async fn read_stream(&mut self) -> Result<Option<bridge::RunResponse>> {
        let silence = silence_of(self.setup.options.as_ref());
        let stream = match &mut self.stream {
            Some(stream) => stream,
            None => {
                let request = self.request().await?;
                let mut sessions = self.setup.core.connection.sessions();
                self.stream.insert(audible(silence, sessions.run(request)).await?.into_inner())
            }
        };
        audible(silence, stream.message()).await
    }

    async fn request(&mut self) -> Result<bridge::RunRequest> {
        if self.request.is_none() {
            let setup = &mut self.setup;
            self.request = Some(bridge::RunRequest {
                request_id: request_id_or_new(setup.request_id.take()),
                session: Some(bridge::run_request::Session::SessionId(setup.core.id.clone())),
                prompt: Some(std::mem::take(&mut setup.prompt).message().await?),
                filter: setup.filter.take(),
                options: setup.options,
            });
        }
        Ok(self.request.clone().unwrap_or_default())
    }

    /// Takes a frame. Returns none if the stream has to be opened again.
    fn take(&mut self, frame: bridge::RunResponse) -> Option<Option<Outcome>> {
        match frame.frame {
            Some(Frame::Started(started)) => {
                self.message_id = started.message_id;
                self.cursor.progress.note(started.position);
            }
            Some(Frame::Outcome(outcome)) => {
                self.cursor.progress.note(outcome.end_position);
                return Some(Some(Outcome::of(std::mem::take(&mut self.message_id), *outcome)));
            }
            Some(Frame::Stream(mut frame)) => {
                if matches!(frame.frame, Some(bridge::subscribe_response::Frame::GoAway(_))) {
                    return None;
                }
                if self.cursor.note(&mut frame) {
                    self.entries.extend(entries(*frame, false));
                }
            }
            None => {}
        }
        Some(None)
    }
}
