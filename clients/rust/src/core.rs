//! What the parts of a session share.

use std::future::Future;
use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use crate::bridge::v1 as bridge;
use crate::connection::{Connection, Reply, method};
use crate::error::Result;
use crate::frames::Cursor;
use crate::position::{Position, Progress};

/// What a session's handles, turns and streams share.
pub(crate) struct Core {
    pub(crate) connection: Arc<Connection>,
    pub(crate) id: String,
    pub(crate) progress: Arc<Progress>,
    /// Cancelled by `close`.
    pub(crate) closed: CancellationToken,
}

impl Core {
    pub(crate) fn cursor(&self, after: Option<Position>) -> Cursor {
        Cursor {
            connection: self.connection.clone(),
            session_id: self.id.clone(),
            progress: self.progress.clone(),
            after,
            tail: false,
            filter: None,
            options: None,
            callbacks: false,
            closed: self.closed.clone(),
        }
    }

    pub(crate) async fn abort(&self) -> Result<bool> {
        let request = bridge::AbortRequest { session_id: self.id.clone() };
        Ok(self.call(method!(self.connection, sessions.abort(request))).await?.turn_was_running)
    }

    pub(crate) async fn call<T, F>(&self, call: impl FnMut() -> F) -> Result<T>
    where
        F: Future<Output = Reply<T>>,
    {
        self.connection.call(Some(&self.progress), call).await
    }

    pub(crate) async fn repeat<T, F>(&self, call: impl FnMut() -> F) -> Result<T>
    where
        F: Future<Output = Reply<T>>,
    {
        self.connection.repeat(Some(&self.progress), call).await
    }
}
