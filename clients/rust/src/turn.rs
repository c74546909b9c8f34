//! Turns: a prompt and what the agent makes of it.

use std::fmt;
use std::future::{Future, IntoFuture};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use crate::bridge::v1 as bridge;
use crate::core::Core;
use crate::error::{Error, Result};
use crate::position::Position;
use crate::prompt::Prompt;
use crate::session::request_id_or_new;

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
        f.pad(match self {
            Self::Completed => "completed",
            Self::Aborted => "aborted",
            Self::Failed => "failed",
            Self::Stalled => "stalled",
            Self::RuntimeLost => "runtime_lost",
            Self::TimedOut => "timed_out",
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
    /// The cause, and what to do, of a turn that did not complete; none if it completed or was aborted.
    pub error: Option<bridge::TurnError>,
    /// Position of the agent's last message.
    pub message_position: Option<Position>,
    /// Position of the turn's end; none if the turn continues.
    pub end_position: Option<Position>,
}

impl Outcome {
    pub(crate) fn of(message_id: String, outcome: bridge::TurnOutcome) -> Self {
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
        let reply = connection
            .repeat_with(connection.reconnect, || async {
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
pub(crate) struct AbortGuard(pub(crate) Option<Arc<Core>>);

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
