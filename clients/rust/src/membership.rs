//! What a participant is, and the changes of its connection.

use std::time::Duration;

use crate::bridge::v1 as bridge;
use crate::cli::v1 as cli;
use crate::error::Error;

/// A change of a participant's connection.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum ConnectionChange {
    /// The stream broke; the library reconnects.
    Disconnected(Error),
    /// The stream is open again.
    Reconnected {
        /// The participant, which is another one after [`ConnectionChange::Expired`].
        participant_id: String,
    },
    /// The participant's grace time passed before the stream was open again. The program joins as a new participant;
    /// callbacks that waited for the old one may have been given their default answers.
    Expired {
        /// The expired participant.
        participant_id: String,
    },
}

type Listener = Box<dyn Fn(ConnectionChange) + Send + Sync>;

/// What a participant is, besides its handlers.
pub(crate) struct Membership {
    pub(crate) name: Option<String>,
    pub(crate) grace: Option<Duration>,
    pub(crate) max_tools: usize,
    pub(crate) commands: Vec<cli::CommandDeclaration>,
    pub(crate) canvases: Vec<cli::CanvasDeclaration>,
    pub(crate) canvas_provider: Option<cli::CanvasProviderIdentity>,
    pub(crate) extension_info: Option<cli::ExtensionIdentity>,
    pub(crate) listener: Option<Listener>,
}

impl Default for Membership {
    fn default() -> Self {
        Self {
            name: None,
            grace: None,
            max_tools: 16,
            commands: Vec::new(),
            canvases: Vec::new(),
            canvas_provider: None,
            extension_info: None,
            listener: None,
        }
    }
}

/// The error of a participation that the server ended.
pub(crate) fn closed_by(session_id: &str, reason: bridge::CloseReason) -> Error {
    let cause = match reason {
        bridge::CloseReason::Draining => return Error::lost("the server is draining"),
        bridge::CloseReason::Disconnected => "disconnected",
        bridge::CloseReason::Deleted => "deleted",
        bridge::CloseReason::Left => "left",
        bridge::CloseReason::Replaced => "replaced",
        bridge::CloseReason::Unshared => "unshared",
        bridge::CloseReason::Unspecified => "unknown",
    };
    Error::closed(session_id, cause)
}
