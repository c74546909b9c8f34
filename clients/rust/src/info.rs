//! What lists and streams of sessions return.

use crate::bridge::v1 as bridge;
use crate::bridge::v1::{SessionChange as Kind, SessionState};

/// A session, as lists, [`Session::get`](crate::Session::get) and [`Client::watch_sessions`] return it.
///
/// [`Client::watch_sessions`]: crate::Client::watch_sessions
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct SessionInfo {
    /// The session's id.
    pub id: String,
    /// Whether the session is in memory, and what opens it otherwise.
    pub state: SessionState,
    /// The session's name, else its summary; empty before the first turn.
    pub title: String,
    /// The model's id; empty if the server does not know it.
    pub model: String,
    /// Everything that the server says about the session.
    pub proto: bridge::Session,
}

impl From<bridge::Session> for SessionInfo {
    fn from(proto: bridge::Session) -> Self {
        let title = if proto.name.is_empty() { &proto.summary } else { &proto.name };
        Self {
            id: proto.session_id.clone(),
            state: proto.state(),
            title: title.clone(),
            model: proto.model_id.clone(),
            proto,
        }
    }
}

/// A change of the caller's sessions.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct SessionChange {
    /// What happened.
    pub kind: Kind,
    /// The session after the change; only its id if it was deleted or is no longer shared.
    pub session: SessionInfo,
    /// The change as a message.
    pub proto: bridge::WatchSessionsResponse,
}

impl From<bridge::WatchSessionsResponse> for SessionChange {
    fn from(proto: bridge::WatchSessionsResponse) -> Self {
        let session = proto.session.clone().unwrap_or_default().into();
        Self { kind: proto.change(), session, proto }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn title_is_the_name_or_else_the_summary() {
        for (name, summary, want) in [("n", "s", "n"), ("", "s", "s"), ("", "", "")] {
            let proto = bridge::Session { name: name.into(), summary: summary.into(), ..Default::default() };
            assert_eq!(SessionInfo::from(proto).title, want);
        }
    }
}
