//! Sending prompts.

use std::future::IntoFuture;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use crate::bridge::v1 as bridge;
use crate::connection::bounded;
use crate::core::Core;
use crate::error::Result;
use crate::position::Position;
use crate::prompt::{Prompt, pieces};
use crate::session::request_id_or_new;

/// The CLI accepted a prompt.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Receipt {
    /// Id of the message.
    pub message_id: String,
    /// The journal's last position at that time: the turn's events are later.
    pub position: Position,
    /// The server could not write the prompt to its disk.
    pub in_memory_only: bool,
}

/// Sends a prompt; `await` it. See [`Session::send`](crate::Session::send).
#[must_use = "futures do nothing unless awaited"]
pub struct SendPrompt {
    pub(crate) core: Arc<Core>,
    pub(crate) prompt: Prompt,
    pub(crate) timeout: Option<Duration>,
    pub(crate) request_id: Option<String>,
}

impl SendPrompt {
    /// Time limit of each attempt, instead of the client's.
    pub fn timeout(mut self, limit: Duration) -> Self {
        self.timeout = Some(limit);
        self
    }

    /// Makes the call idempotent across restarts of this program; default: a random id.
    pub fn request_id(mut self, id: impl Into<String>) -> Self {
        self.request_id = Some(id.into());
        self
    }

    async fn send(self) -> Result<Receipt> {
        let large = self.prompt.is_large().await;
        let (message, large) =
            if large { self.prompt.split().await? } else { (self.prompt.message().await?, Vec::new()) };
        let request = bridge::SendRequest {
            request_id: request_id_or_new(self.request_id),
            session_id: self.core.id.clone(),
            prompt: Some(message),
        };
        let (core, limit) = (&self.core, self.timeout.or(self.core.connection.timeout));
        if large.is_empty() {
            let reply = core.connection.repeat_with(core.connection.reconnect.of_calls(), || async {
                let mut sessions = core.connection.sessions();
                bounded(limit, sessions.send(request.clone())).await
            });
            return Ok(core.receipt(reply.await?));
        }
        // A stream can be read once, so that the call is not repeated.
        let (failed, mut failures) = tokio::sync::mpsc::unbounded_channel();
        let mut sessions = core.connection.sessions();
        let reply = tokio::select! {
            Some(failure) = failures.recv() => return Err(failure),
            reply = bounded(self.timeout, sessions.send_stream(pieces(request, large, failed))) => reply?,
        };
        let reply = reply.map(|reply| bridge::SendResponse {
            message_id: reply.message_id,
            position: reply.position,
            resent_message_id: reply.resent_message_id,
            in_memory_only: reply.in_memory_only,
        });
        Ok(core.receipt(reply))
    }
}

impl IntoFuture for SendPrompt {
    type Output = Result<Receipt>;
    type IntoFuture = Pin<Box<dyn Future<Output = Result<Receipt>> + Send>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.send())
    }
}

impl Core {
    fn receipt(&self, reply: tonic::Response<bridge::SendResponse>) -> Receipt {
        self.progress.note_trailers(reply.metadata());
        let reply = reply.into_inner();
        self.progress.note(reply.position);
        let resent = Some(reply.resent_message_id).filter(|id| !id.is_empty());
        Receipt {
            message_id: resent.unwrap_or(reply.message_id),
            position: reply.position.map(Into::into).unwrap_or_default(),
            in_memory_only: reply.in_memory_only,
        }
    }
}
