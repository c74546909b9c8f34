//! Turns that are read while they happen.

use std::collections::{HashSet, VecDeque};
use std::future::{Future, IntoFuture};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use futures_core::Stream;
use tonic::Streaming;

use crate::bridge::v1 as bridge;
use crate::bridge::v1::run_response::Frame;
use crate::cli::v1::session_event::Data;
use crate::core::Core;
use crate::error::{Error, Result};
use crate::events::{Entry, Values};
use crate::frames::{Cursor, audible, entries, silence_of};
use crate::prompt::Prompt;
use crate::retry::Backoff;
use crate::session::request_id_or_new;
use crate::turn::{AbortGuard, Outcome};

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
            Some(Frame::Progress(progress)) => tracing::info!(detail = progress.detail, "waiting for the server"),
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
