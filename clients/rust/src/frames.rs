//! Frames of event streams, over one stream after another.

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
use crate::connection::Connection;
use crate::error::{Error, Result};
use crate::events::Entry;
use crate::link::SILENCE;
use crate::position::{Position, Progress};
use crate::retry::Backoff;

/// The events and gaps in a frame.
pub(crate) struct Entries {
    events: std::vec::IntoIter<bridge::Event>,
    gap: Option<Entry>,
}

impl Entries {
    pub(crate) fn none() -> Self {
        Self { events: Vec::new().into_iter(), gap: None }
    }
}

impl Iterator for Entries {
    type Item = Entry;

    fn next(&mut self) -> Option<Entry> {
        self.events.next().map(Entry::event_of).or_else(|| self.gap.take())
    }
}

pub(crate) fn entries(frame: bridge::SubscribeResponse, ephemeral_gaps: bool) -> Entries {
    match frame.frame {
        Some(Frame::Events(batch)) => Entries { events: batch.events.into_iter(), gap: None },
        Some(Frame::Gap(gap)) => Entries { gap: Entry::gap_of(*gap, ephemeral_gaps), ..Entries::none() },
        _ => Entries::none(),
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

/// What a stream returns: a frame, its end, or its failure.
type Received = std::result::Result<Option<bridge::SubscribeResponse>, tonic::Status>;

/// The frames of one session, over one stream after another, without duplicates.
pub(crate) struct Frames {
    cursor: Cursor,
    stream: Option<Streaming<bridge::SubscribeResponse>>,
    /// Whether the stream has returned a frame.
    alive: bool,
    /// What `arrived` took from the stream and left for `next`.
    left: Option<Received>,
    backoff: Backoff,
    ended: bool,
}

impl Frames {
    pub(crate) fn new(cursor: Cursor) -> Self {
        let backoff = Backoff::new(cursor.connection.reconnect);
        Self { cursor, stream: None, alive: false, left: None, backoff, ended: false }
    }

    /// The next frame; none after the session is over or closed here.
    pub(crate) async fn next(&mut self) -> Option<Result<bridge::SubscribeResponse>> {
        if self.ended {
            return None;
        }
        let closed = self.cursor.closed.clone();
        let frame = if closed.is_cancelled() {
            None
        } else {
            // The frame comes first: a waiter for the end is only registered where there is none.
            let frame = tokio::select! {
                biased;
                frame = self.read() => Some(frame),
                () = closed.cancelled() => None,
            };
            // A stream that breaks because this participation closes is no failure.
            frame.filter(|frame| frame.is_ok() || !closed.is_cancelled())
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

    /// A frame that the stream already has. None: `next` has to wait, or to end or reopen the stream.
    pub(crate) fn arrived(&mut self, cx: &mut Context<'_>) -> Option<bridge::SubscribeResponse> {
        if self.ended || self.left.is_some() || self.cursor.closed.is_cancelled() {
            return None;
        }
        let stream = self.stream.as_mut()?;
        while let Poll::Ready(received) = Pin::new(&mut *stream).poll_next(cx) {
            match received {
                Some(Ok(mut frame)) if !matches!(frame.frame, Some(Frame::Closed(_) | Frame::GoAway(_))) => {
                    self.alive = true;
                    if self.cursor.note(&mut frame) {
                        return Some(frame);
                    }
                }
                received => {
                    self.left = Some(received.transpose());
                    return None;
                }
            }
        }
        None
    }

    async fn read(&mut self) -> Result<bridge::SubscribeResponse> {
        loop {
            let cause = match self.read_stream().await {
                Ok(Some(mut frame)) => {
                    self.alive = true;
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
            if std::mem::take(&mut self.alive) {
                self.backoff.reset();
            }
            if !self.cursor.connection.may_reopen(&mut self.backoff, &cause).await {
                return Err(cause);
            }
        }
    }

    async fn read_stream(&mut self) -> Result<Option<bridge::SubscribeResponse>> {
        if let Some(received) = self.left.take() {
            return Ok(received?);
        }
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
    // The timer is only made where nothing has arrived yet.
    tokio::select! {
        biased;
        result = read => Ok(result?),
        () = async { tokio::time::sleep(silence).await } => Err(Error::lost("the server is silent")),
    }
}

/// The time without a frame after which a stream is broken: three times the heartbeat's interval.
pub(crate) fn silence_of(options: Option<&bridge::StreamOptions>) -> Duration {
    let asked = options.and_then(|options| options.heartbeat_interval);
    let interval = asked.and_then(|asked| Duration::try_from(asked).ok()).unwrap_or(Duration::from_secs(30));
    SILENCE.max(interval * 3)
}
