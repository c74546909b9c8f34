//! One Attach stream, and the line of streams that a participant has.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures_util::stream::{self, StreamExt};
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, Interval, MissedTickBehavior};
use tokio_util::sync::CancellationToken;
use tonic::Streaming;

use crate::bridge::v1 as bridge;
use crate::bridge::v1::attach_request::Frame;
use crate::connection::Connection;
use crate::error::{Error, Result};

/// Interval of signs of life in both directions: below the idle timeout of the usual proxies.
pub(crate) const HEARTBEAT: Duration = Duration::from_secs(20);
/// A stream without any frame for this time is broken.
pub(crate) const SILENCE: Duration = Duration::from_secs(60);
/// Frames that wait for the network. Senders of further frames wait.
const MAX_WAITING: usize = 64;

/// The sending side of an Attach stream. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Link {
    id: u64,
    frames: mpsc::Sender<bridge::AttachRequest>,
    /// Cancelled when nothing more is read.
    pub(crate) down: CancellationToken,
}

impl Link {
    /// Waits for a place for a frame. Returns none if the stream is down.
    pub(crate) async fn reserve(&self) -> Option<Place<'_>> {
        tokio::select! {
            biased;
            () = self.down.cancelled() => None,
            permit = self.frames.reserve() => match permit {
                Ok(permit) => Some(Place { permit, id: self.id }),
                Err(_) => {
                    self.down.cancelled().await; // the reader is about to notice
                    None
                }
            },
        }
    }

    /// Sends a frame. Returns false if the stream is down.
    pub(crate) async fn send(&self, frame: Frame) -> bool {
        let frame = bridge::AttachRequest { frame: Some(frame) };
        tokio::select! {
            biased;
            () = self.down.cancelled() => false,
            sent = self.frames.send(frame) => sent.is_ok(),
        }
    }
}

/// A place for a frame among those that wait for the network.
pub(crate) struct Place<'a> {
    permit: mpsc::Permit<'a, bridge::AttachRequest>,
    id: u64,
}

impl Place<'_> {
    /// Sends a frame. Returns the stream's number.
    pub(crate) fn send(self, frame: Frame) -> u64 {
        self.permit.send(bridge::AttachRequest { frame: Some(frame) });
        self.id
    }
}

/// An Attach stream in the hands of the task that reads it. Dropping it ends the stream.
pub(crate) struct Wire {
    pub(crate) link: Link,
    stream: Streaming<bridge::AttachResponse>,
    heartbeat: Interval,
    heard_at: Instant,
}

impl Wire {
    /// Opens a stream with its first frame. The server may take its time to reply.
    pub(crate) async fn open(connection: &Connection, start: bridge::AttachStart) -> Result<Self> {
        static IDS: AtomicU64 = AtomicU64::new(1);
        let (frames, waiting) = mpsc::channel(MAX_WAITING);
        let down = CancellationToken::new();
        let link = Link { id: IDS.fetch_add(1, Ordering::Relaxed), frames, down: down.clone() };
        let guard = down.drop_guard();
        let first = bridge::AttachRequest { frame: Some(Frame::Start(Box::new(start))) };
        let rest = stream::unfold(waiting, |mut waiting| async move { Some((waiting.recv().await?, waiting)) });
        let requests = stream::iter([first]).chain(rest);
        let mut heartbeat = tokio::time::interval_at(Instant::now() + HEARTBEAT, HEARTBEAT);
        heartbeat.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let heard_at = Instant::now();
        let mut callbacks = connection.callbacks();
        let mut opening = std::pin::pin!(callbacks.attach(requests));
        let stream = loop {
            tokio::select! {
                opened = &mut opening => break opened?.into_inner(),
                _ = heartbeat.tick() => beat(&link, heard_at)?,
            }
        };
        guard.disarm();
        Ok(Self { link, stream, heartbeat, heard_at })
    }

    /// The next frame. Fails when the stream has ended, for whatever reason. Safe to cancel.
    pub(crate) async fn read(&mut self) -> Result<bridge::AttachResponse> {
        loop {
            tokio::select! {
                biased;
                frame = self.stream.message() => {
                    self.heard_at = Instant::now();
                    return frame?.ok_or_else(|| Error::lost("the server ended the attach stream"));
                }
                _ = self.heartbeat.tick() => beat(&self.link, self.heard_at)?,
            }
        }
    }
}

impl Drop for Wire {
    fn drop(&mut self) {
        self.link.down.cancel();
    }
}

/// Sends a sign of life, unless other frames wait already. Fails if the server gave none for too long.
fn beat(link: &Link, heard_at: Instant) -> Result<()> {
    if heard_at.elapsed() >= SILENCE {
        return Err(Error::lost("the server is silent"));
    }
    let _ = link.frames.try_send(bridge::AttachRequest { frame: Some(Frame::Heartbeat(Box::default())) });
    Ok(())
}

enum State {
    Down,
    Live(Link),
    Ended(Error),
}

/// The streams of a participant, one after another.
pub(crate) struct Line(watch::Sender<State>);

impl Line {
    pub(crate) fn new() -> Self {
        Self(watch::Sender::new(State::Down))
    }

    /// Waits for a stream. Returns the reason when the participation is over.
    pub(crate) async fn live(&self) -> Result<Link> {
        let mut changes = self.0.subscribe();
        let usable = |state: &State| match state {
            State::Down => false,
            State::Live(link) => !link.down.is_cancelled(),
            State::Ended(_) => true,
        };
        match changes.wait_for(usable).await.as_deref() {
            Ok(State::Live(link)) => Ok(link.clone()),
            Ok(State::Ended(error)) => Err(error.clone()),
            _ => Err(Error::lost("the participation is over")),
        }
    }

    /// The number of the current stream; none while there is none.
    pub(crate) fn current(&self) -> Option<u64> {
        match &*self.0.borrow() {
            State::Live(link) => Some(link.id),
            _ => None,
        }
    }

    /// Sends a frame if a stream takes it at once. Returns the stream's number.
    pub(crate) fn try_send(&self, frame: Frame) -> Option<u64> {
        match &*self.0.borrow() {
            State::Live(link) if !link.down.is_cancelled() => {
                link.frames.try_send(bridge::AttachRequest { frame: Some(frame) }).ok().map(|()| link.id)
            }
            _ => None,
        }
    }

    /// The reason for the end of the participation; none while it continues.
    pub(crate) fn ended(&self) -> Option<Error> {
        match &*self.0.borrow() {
            State::Ended(error) => Some(error.clone()),
            _ => None,
        }
    }

    pub(crate) async fn wait_ended(&self) -> Error {
        let mut changes = self.0.subscribe();
        let over = changes.wait_for(|state| matches!(state, State::Ended(_))).await;
        match over.as_deref() {
            Ok(State::Ended(error)) => error.clone(),
            _ => Error::lost("the participation is over"),
        }
    }

    /// Makes a stream the current one. A stream that is current already changes nothing.
    pub(crate) fn set(&self, link: &Link) {
        self.0.send_if_modified(|state| {
            let same = matches!(state, State::Live(current) if current.id == link.id);
            if !same {
                *state = State::Live(link.clone());
            }
            !same
        });
    }

    pub(crate) fn end(&self, error: Error) {
        self.0.send_replace(State::Ended(error));
    }
}
