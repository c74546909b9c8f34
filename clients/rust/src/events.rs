//! Events of sessions, and streams of them.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures_core::Stream;
use tokio_util::sync::CancellationToken;
use tonic::Streaming;

use crate::bridge::v1 as bridge;
use crate::bridge::v1::subscribe_response::Frame;
use crate::cli::v1::session_event::Data;
use crate::connection::Connection;
use crate::error::{Error, Result};
use crate::link::SILENCE;
use crate::position::{Position, Progress};
use crate::retry::Backoff;

/// An event of a session.
#[derive(Clone, Debug)]
pub struct Event {
    /// The event as a message, with timestamp, ids and original JSON.
    pub message: bridge::Event,
}

impl Event {
    /// The CLI's name of the type, such as `assistant.message`.
    pub fn event_type(&self) -> &str {
        self.message.event.as_ref().map_or("", |event| &event.event_type)
    }

    /// Position in the session's journal.
    pub fn position(&self) -> Position {
        self.message.position.map(Into::into).unwrap_or_default()
    }

    /// The typed data; `Data::Unrecognized` with the JSON text for a type that is newer than this library.
    pub fn data(&self) -> Option<&Data> {
        self.message.event.as_ref()?.data.as_ref()
    }

    /// The sub-agent that the event is about; none for the session's own agent.
    pub fn agent_id(&self) -> Option<&str> {
        self.message.event.as_ref()?.agent_id.as_deref().filter(|id| !id.is_empty())
    }
}

/// The reason for missing events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum GapReason {
    /// Ephemeral events, such as the deltas of old turns, were no longer in memory.
    EphemeralLost,
    /// The journal no longer contains the events.
    Trimmed,
    /// The position belongs to an epoch whose events cannot be related to the current one.
    EpochEnded,
    /// A reason that is newer than this library.
    Unknown,
}

/// Missing events, in the place where they would be.
///
/// Streams leave out gaps of ephemeral events unless [`Subscribe::ephemeral_gaps`] is set.
#[derive(Clone, Debug)]
pub struct Gap {
    /// The gap as a message, with the session's current state to restart from.
    pub message: bridge::Gap,
}

impl Gap {
    /// The last position before the missing events.
    pub fn after(&self) -> Position {
        self.message.after.map(Into::into).unwrap_or_default()
    }

    /// The last missing position.
    pub fn through(&self) -> Position {
        self.message.through.map(Into::into).unwrap_or_default()
    }

    /// The reason.
    pub fn reason(&self) -> GapReason {
        match bridge::GapReason::try_from(self.message.reason) {
            Ok(bridge::GapReason::EphemeralLost) => GapReason::EphemeralLost,
            Ok(bridge::GapReason::Trimmed) => GapReason::Trimmed,
            Ok(bridge::GapReason::EpochEnded) => GapReason::EpochEnded,
            _ => GapReason::Unknown,
        }
    }

    fn is_reported(&self, ephemeral_gaps: bool) -> bool {
        ephemeral_gaps || self.reason() != GapReason::EphemeralLost
    }
}

/// An entry of a session's journal, as a stream of events returns it.
#[derive(Clone, Debug)]
pub enum Entry {
    /// An event.
    Event(Box<Event>),
    /// Events are missing here.
    Gap(Box<Gap>),
}

impl Entry {
    pub(crate) fn event_of(message: bridge::Event) -> Self {
        Self::Event(Box::new(Event { message }))
    }

    pub(crate) fn gap_of(message: bridge::Gap, ephemeral_gaps: bool) -> Option<Self> {
        let gap = Gap { message };
        gap.is_reported(ephemeral_gaps).then(|| Self::Gap(Box::new(gap)))
    }

    /// The position of the event, or of the last missing one.
    pub fn position(&self) -> Position {
        match self {
            Self::Event(event) => event.position(),
            Self::Gap(gap) => gap.through(),
        }
    }

    /// The event, unless events are missing here.
    pub fn event(&self) -> Option<&Event> {
        match self {
            Self::Event(event) => Some(event),
            Self::Gap(_) => None,
        }
    }

    /// The typed data of the event.
    pub fn data(&self) -> Option<&Data> {
        self.event()?.data()
    }

    /// The type of the event, such as `assistant.message`; empty for a gap.
    pub fn event_type(&self) -> &str {
        self.event().map_or("", Event::event_type)
    }
}

/// The start of a stream in a session's journal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Start {
    /// The position where this program opened the session; for a created session and a handle, the first event.
    #[default]
    Opened,
    /// The first event.
    Beginning,
    /// The next event.
    Now,
    /// The event after a position.
    After(Position),
}

/// A stream of values. It implements `Stream`; dropping it ends the stream.
pub struct Values<T> {
    values: Pin<Box<dyn Stream<Item = Result<T>> + Send>>,
}

impl<T: 'static> Values<T> {
    /// The values that `next` returns, until it returns none or an error.
    pub(crate) fn new<S, F, Fut>(state: S, next: F) -> Self
    where
        S: Send + 'static,
        F: Fn(S) -> Fut + Send + 'static,
        Fut: Future<Output = (Option<Result<T>>, S)> + Send + 'static,
        T: Send,
    {
        let values = futures_util::stream::unfold(Some((state, next)), |state| async move {
            let (state, next) = state?;
            let (value, state) = next(state).await;
            let value = value?;
            let rest = value.is_ok().then_some((state, next));
            Some((value, rest))
        });
        Self { values: Box::pin(values) }
    }

    /// The next value; none at the end. After an error the stream is at its end.
    pub async fn next(&mut self) -> Option<Result<T>> {
        std::future::poll_fn(|cx| self.values.as_mut().poll_next(cx)).await
    }

    /// All remaining values.
    pub async fn collect(mut self) -> Result<Vec<T>> {
        let mut all = Vec::new();
        while let Some(value) = self.next().await {
            all.push(value?);
        }
        Ok(all)
    }
}

impl<T> Stream for Values<T> {
    type Item = Result<T>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<T>>> {
        self.values.as_mut().poll_next(cx)
    }
}

impl<T> fmt::Debug for Values<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Values")
    }
}

/// Settings of a stream of events; see [`Session::events`](crate::Session::events).
#[must_use = "call `stream`"]
pub struct Subscribe {
    pub(crate) cursor: Cursor,
    pub(crate) opened_at: Option<Position>,
    pub(crate) ephemeral_gaps: bool,
}

impl Subscribe {
    /// Where the stream starts.
    pub fn start(mut self, start: Start) -> Self {
        (self.cursor.after, self.cursor.tail) = match start {
            Start::Opened => (self.opened_at, false),
            Start::Beginning => (None, false),
            Start::Now => (None, true),
            Start::After(position) => (Some(position), false),
        };
        self
    }

    /// Only these types: `assistant.message`, or `assistant.*`.
    pub fn types<S: Into<String>>(mut self, types: impl IntoIterator<Item = S>) -> Self {
        self.filter_mut().types = types.into_iter().map(Into::into).collect();
        self
    }

    /// Not these types.
    pub fn exclude<S: Into<String>>(mut self, types: impl IntoIterator<Item = S>) -> Self {
        self.filter_mut().exclude_types = types.into_iter().map(Into::into).collect();
        self
    }

    /// The complete filter.
    pub fn filter(mut self, filter: bridge::EventFilter) -> Self {
        self.cursor.filter = Some(filter);
        self
    }

    /// Fidelity, original JSON and other options.
    pub fn options(mut self, options: bridge::StreamOptions) -> Self {
        self.cursor.options = Some(options);
        self
    }

    /// Also reports gaps of ephemeral events.
    pub fn ephemeral_gaps(mut self) -> Self {
        self.ephemeral_gaps = true;
        self
    }

    fn filter_mut(&mut self) -> &mut bridge::EventFilter {
        self.cursor.filter.get_or_insert_with(Default::default)
    }

    /// The events, until the session or this participation is over.
    pub fn stream(self) -> Values<Entry> {
        let ephemeral_gaps = self.ephemeral_gaps;
        let state = (Frames::new(self.cursor), std::collections::VecDeque::new());
        Values::new(state, move |(mut frames, mut ready)| async move {
            loop {
                if let Some(entry) = ready.pop_front() {
                    return (Some(Ok(entry)), (frames, ready));
                }
                match frames.next().await {
                    Some(Ok(frame)) => ready.extend(entries(frame, ephemeral_gaps)),
                    Some(Err(error)) => return (Some(Err(error)), (frames, ready)),
                    None => return (None, (frames, ready)),
                }
            }
        })
    }

    /// All frames of the stream: also the end of the replay, ends of turns, restarts, and, with `callbacks`, pending
    /// callbacks.
    pub fn frames(mut self, callbacks: bool) -> Values<bridge::SubscribeResponse> {
        self.cursor.callbacks = callbacks;
        Values::new(Frames::new(self.cursor), |mut frames| async move { (frames.next().await, frames) })
    }
}

/// The events and gaps in a frame.
pub(crate) fn entries(frame: bridge::SubscribeResponse, ephemeral_gaps: bool) -> Vec<Entry> {
    match frame.frame {
        Some(Frame::Events(batch)) => batch.events.into_iter().map(Entry::event_of).collect(),
        Some(Frame::Gap(gap)) => Entry::gap_of(*gap, ephemeral_gaps).into_iter().collect(),
        _ => Vec::new(),
    }
}

/// A place in the journal of a session, which moves with each frame.
pub(crate) struct Cursor {
    pub(crate) connection: Arc<Connection>,
    pub(crate) session_id: String,
    pub(crate) progress: Arc<Progress>,
    pub(crate) after: Option<Position>,
    pub(crate) tail: bool,
    pub(crate) filter: Option<bridge::EventFilter>,
    pub(crate) options: Option<bridge::StreamOptions>,
    pub(crate) callbacks: bool,
    pub(crate) closed: CancellationToken,
}

impl Cursor {
    fn request(&self) -> bridge::SubscribeRequest {
        let start = if self.tail { bridge::StreamStart::End } else { bridge::StreamStart::Unspecified };
        let cursor = bridge::SessionCursor {
            session_id: self.session_id.clone(),
            after: self.after.map(Into::into),
            start: start.into(),
            filter: self.filter.clone(),
        };
        bridge::SubscribeRequest { sessions: vec![cursor], options: self.options, callbacks: self.callbacks }
    }

    /// Moves the cursor. Returns false for a frame whose events have all been read before.
    pub(crate) fn note(&mut self, frame: &mut bridge::SubscribeResponse) -> bool {
        if let Some(Frame::Events(batch)) = &mut frame.frame {
            if let Some(after) = self.after {
                batch.events.retain(|event| event.position.is_some_and(|position| Position::from(position) > after));
            }
            let Some(last) = batch.events.last() else { return false };
            self.after = last.position.map(Into::into);
        }
        if let Some(seen) = frame.resume_after.map(Position::from) {
            self.after = Some(self.after.map_or(seen, |after| after.max(seen)));
        }
        self.progress.note(self.after);
        frame.frame.is_some()
    }
}

/// The frames of one session, over one stream after another, without duplicates.
pub(crate) struct Frames {
    cursor: Cursor,
    stream: Option<Streaming<bridge::SubscribeResponse>>,
    backoff: Backoff,
    ended: bool,
}

impl Frames {
    pub(crate) fn new(cursor: Cursor) -> Self {
        let backoff = Backoff::new(cursor.connection.reconnect);
        Self { cursor, stream: None, backoff, ended: false }
    }

    /// The next frame; none after the session is over or closed here.
    pub(crate) async fn next(&mut self) -> Option<Result<bridge::SubscribeResponse>> {
        let closed = self.cursor.closed.clone();
        if self.ended {
            return None;
        }
        let frame = tokio::select! {
            biased;
            () = closed.cancelled() => None,
            frame = self.read() => Some(frame),
        };
        let is_last = match &frame {
            Some(Ok(frame)) => matches!(frame.frame, Some(Frame::Closed(_))),
            _ => true,
        };
        if is_last {
            (self.ended, self.stream) = (true, None);
        }
        frame
    }

    async fn read(&mut self) -> Result<bridge::SubscribeResponse> {
        loop {
            let cause = match self.read_stream().await {
                Ok(Some(mut frame)) => {
                    self.backoff.reset();
                    if must_return(&frame) {
                        Error::lost("the server asks to reconnect")
                    } else if self.cursor.note(&mut frame) {
                        return Ok(frame);
                    } else {
                        continue;
                    }
                }
                Ok(None) => Error::lost("the server ended the event stream"),
                Err(error) => error,
            };
            self.stream = None;
            if !self.cursor.connection.may_reopen(&mut self.backoff, &cause).await {
                return Err(cause);
            }
        }
    }

    async fn read_stream(&mut self) -> Result<Option<bridge::SubscribeResponse>> {
        let silence = silence_of(self.cursor.options.as_ref());
        let stream = match &mut self.stream {
            Some(stream) => stream,
            None => {
                let mut events = self.cursor.connection.events();
                let opened = audible(silence, events.subscribe(self.cursor.request())).await?;
                self.stream.insert(opened.into_inner())
            }
        };
        audible(silence, stream.message()).await
    }
}

/// Whether a frame asks the reader to open another stream.
pub(crate) fn must_return(frame: &bridge::SubscribeResponse) -> bool {
    match &frame.frame {
        Some(Frame::GoAway(_)) => true,
        Some(Frame::Closed(closed)) => closed.reason() == bridge::CloseReason::Draining,
        _ => false,
    }
}

/// Waits for a sign of life. A stream without one is broken.
pub(crate) async fn audible<T>(
    silence: Duration,
    read: impl Future<Output = std::result::Result<T, tonic::Status>>,
) -> Result<T> {
    match tokio::time::timeout(silence, read).await {
        Ok(result) => Ok(result?),
        Err(_) => Err(Error::lost("the server is silent")),
    }
}

/// The time without a frame after which a stream is broken: three times the heartbeat's interval.
pub(crate) fn silence_of(options: Option<&bridge::StreamOptions>) -> Duration {
    let asked = options.and_then(|options| options.heartbeat_interval);
    let interval = asked.and_then(|asked| Duration::try_from(asked).ok()).unwrap_or(Duration::from_secs(30));
    SILENCE.max(interval * 3)
}
