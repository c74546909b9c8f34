//! Events of sessions, and streams of them.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use futures_core::Stream;

use crate::bridge::v1 as bridge;
use crate::cli::v1::session_event::Data;
use crate::error::Result;
use crate::frames::{Cursor, Entries, Frames, entries};
use crate::position::Position;

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

impl fmt::Display for GapReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::EphemeralLost => "ephemeral_lost",
            Self::Trimmed => "trimmed",
            Self::EpochEnded => "epoch_ended",
            Self::Unknown => "unknown",
        })
    }
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
        let source = Source::Between(Box::new(Frames::new(self.cursor)));
        let stream = EntryStream { ready: Entries::none(), source, ephemeral_gaps: self.ephemeral_gaps };
        Values { values: Box::pin(stream) }
    }

    /// All frames of the stream: also the end of the replay, ends of turns, restarts, and, with `callbacks`, pending
    /// callbacks.
    pub fn frames(mut self, callbacks: bool) -> Values<bridge::SubscribeResponse> {
        self.cursor.callbacks = callbacks;
        Values::new(Box::new(Frames::new(self.cursor)), read)
    }
}

type Reading = (Option<Result<bridge::SubscribeResponse>>, Box<Frames>);

async fn read(mut frames: Box<Frames>) -> Reading {
    (frames.next().await, frames)
}

/// Where the next frame comes from.
enum Source {
    /// It may have arrived.
    Between(Box<Frames>),
    /// The future waits for it.
    Waiting(Pin<Box<dyn Future<Output = Reading> + Send>>),
    Ended,
}

/// The entries of frames. Frames that have arrived are taken without a future: to move its state took a fifth of
/// the instructions of an event.
struct EntryStream {
    ready: Entries,
    source: Source,
    ephemeral_gaps: bool,
}

impl Stream for EntryStream {
    type Item = Result<Entry>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Entry>>> {
        loop {
            if let Some(entry) = self.ready.next() {
                return Poll::Ready(Some(Ok(entry)));
            }
            let (frame, frames) = match std::mem::replace(&mut self.source, Source::Ended) {
                Source::Ended => return Poll::Ready(None),
                Source::Between(mut frames) => match frames.arrived(cx) {
                    Some(frame) => (Some(Ok(frame)), frames),
                    None => {
                        self.source = Source::Waiting(Box::pin(read(frames)));
                        continue;
                    }
                },
                Source::Waiting(mut reading) => match reading.as_mut().poll(cx) {
                    Poll::Ready(reading) => reading,
                    Poll::Pending => {
                        self.source = Source::Waiting(reading);
                        return Poll::Pending;
                    }
                },
            };
            match frame {
                Some(Ok(frame)) => {
                    self.ready = entries(frame, self.ephemeral_gaps);
                    self.source = Source::Between(frames);
                }
                Some(Err(error)) => return Poll::Ready(Some(Err(error))),
                None => return Poll::Ready(None),
            }
        }
    }
}
