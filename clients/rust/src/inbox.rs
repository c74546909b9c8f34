//! The callbacks that wait in all sessions.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use tonic::Streaming;

use crate::bridge::v1 as bridge;
use crate::bridge::v1::watch_pending_response::Change;
use crate::connection::{Connection, method};
use crate::error::{Error, Result};
use crate::events::Values;
use crate::frames::{audible, silence_of};
use crate::position::Progress;
use crate::retry::Backoff;

/// A change of the list of callbacks that wait.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum PendingChange {
    /// A callback waits for an answer. Each is reported once, however often the stream breaks.
    Waiting(PendingCallback),
    /// A callback that was reported no longer waits, or the caller may no longer see it.
    Ended(PendingEnd),
}

/// A callback that waits for an answer.
#[derive(Clone)]
pub struct PendingCallback {
    /// The callback, with its session, kind and request. The request of a very large one is left out: see
    /// `Callback.total_bytes` of the API.
    pub proto: bridge::Callback,
    connection: Arc<Connection>,
}

impl PendingCallback {
    /// The callback's id, as in [`Session::resolve`](crate::Session::resolve).
    pub fn id(&self) -> &str {
        &self.proto.callback_id
    }

    /// The kind, which prints as `permission` or `tool_call`.
    pub fn kind(&self) -> bridge::CallbackKind {
        self.proto.kind()
    }

    /// Answers the callback. [`answers`](crate::answers) makes answers. Fails with
    /// [`Reason::CallbackResolved`](crate::Reason::CallbackResolved) if another caller was first, or the callback ended
    /// in another way.
    pub async fn answer(&self, answer: bridge::Answer) -> Result<()> {
        let request = bridge::ResolveRequest {
            session_id: self.proto.session_id.clone(),
            callback_id: self.proto.callback_id.clone(),
            answer: Some(answer),
            request_id: crate::new_id(),
        };
        let connection = &self.connection;
        connection.repeat(None, method!(connection, callbacks.resolve(request))).await.map(|_| ())
    }
}

impl std::fmt::Debug for PendingCallback {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("PendingCallback").field(&self.proto).finish()
    }
}

/// The end of a callback.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct PendingEnd {
    /// The callback.
    pub proto: bridge::Callback,
    /// How it ended, and who answered it; none if the server did not say.
    pub resolved: Option<bridge::CallbackResolved>,
}

/// The callbacks that wait in a session, or in all of them without an id, oldest first.
pub(crate) async fn pending(
    connection: &Arc<Connection>,
    progress: Option<&Progress>,
    session_id: String,
) -> Result<Vec<PendingCallback>> {
    let mut request = bridge::ListPendingRequest { session_id, ..Default::default() };
    let mut found = Vec::new();
    loop {
        let page = connection.repeat(progress, method!(connection, callbacks.list_pending(request))).await?;
        let callbacks = page.callbacks.into_iter();
        found.extend(callbacks.map(|proto| PendingCallback { proto, connection: connection.clone() }));
        request.page_token = page.next_page_token;
        if request.page_token.is_empty() {
            return Ok(found);
        }
    }
}

/// Settings of a stream of pending callbacks; see [`Client::watch_pending`](crate::Client::watch_pending).
#[must_use = "call `stream`"]
pub struct WatchPending {
    connection: Arc<Connection>,
    request: bridge::WatchPendingRequest,
}

impl WatchPending {
    pub(crate) fn new(connection: Arc<Connection>) -> Self {
        let request = bridge::WatchPendingRequest { name: connection.name.clone(), ..Default::default() };
        Self { connection, request }
    }

    /// Also handles these callbacks while the stream lasts: they wait for an answer, instead of getting their default
    /// answers at once. Requires the role participant.
    pub fn handle(mut self) -> Self {
        self.request.handle = true;
        self
    }

    /// Only these kinds. Default: those that people answer with [`handle`](Self::handle), and without it all but the
    /// frequent kinds of session files and model requests.
    pub fn kinds(mut self, kinds: impl IntoIterator<Item = bridge::CallbackKind>) -> Self {
        self.filter().kinds = kinds.into_iter().map(Into::into).collect();
        self
    }

    /// Only sessions with this label. May be called for several labels, all of which a session must have then.
    pub fn label(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.filter().labels.insert(name.into(), value.into());
        self
    }

    /// Only sessions of this tenant. Default: the caller's tenant, and all tenants that share sessions with it.
    pub fn owner(mut self, tenant: impl Into<String>) -> Self {
        self.filter().owner = tenant.into();
        self
    }

    /// Time for which the caller remains a handler after the stream has ended; 0 s to 1 h, default 30 s.
    pub fn grace(mut self, grace: Duration) -> Self {
        self.request.grace = grace.try_into().ok();
        self
    }

    fn filter(&mut self) -> &mut bridge::PendingFilter {
        self.request.filter.get_or_insert_with(Default::default)
    }

    /// The changes, without an end: first one for each callback that waits, oldest first, then changes as they happen. A
    /// broken stream is opened again.
    pub fn stream(self) -> Values<PendingChange> {
        let backoff = Backoff::new(self.connection.reconnect);
        let state = Reader { settings: self, stream: None, backoff, inbox: Inbox::default(), ready: Vec::new() };
        Values::new(state, |mut reader| async move { (Some(reader.next().await), reader) })
    }
}

struct Reader {
    settings: WatchPending,
    stream: Option<Streaming<bridge::WatchPendingResponse>>,
    backoff: Backoff,
    inbox: Inbox,
    /// Changes that were read, the next one last.
    ready: Vec<InboxChange>,
}

impl Reader {
    async fn next(&mut self) -> Result<PendingChange> {
        loop {
            if let Some(change) = self.ready.pop() {
                return Ok(match change {
                    InboxChange::Waiting(proto) => {
                        let connection = self.settings.connection.clone();
                        PendingChange::Waiting(PendingCallback { proto, connection })
                    }
                    InboxChange::Ended(end) => PendingChange::Ended(end),
                });
            }
            match self.read().await {
                Ok(response) => {
                    self.backoff.reset();
                    self.ready = self.inbox.take(response);
                    self.ready.reverse();
                }
                Err(cause) => {
                    self.stream = None;
                    if !self.settings.connection.may_reopen(&mut self.backoff, &cause).await {
                        return Err(cause);
                    }
                }
            }
        }
    }

    async fn read(&mut self) -> Result<bridge::WatchPendingResponse> {
        let silence = silence_of(None);
        let stream = match &mut self.stream {
            Some(stream) => stream,
            None => {
                self.inbox.restart();
                let mut callbacks = self.settings.connection.callbacks();
                let opened = audible(silence, callbacks.watch_pending(self.settings.request.clone())).await?;
                self.stream.insert(opened.into_inner())
            }
        };
        audible(silence, stream.message()).await?.ok_or_else(|| Error::lost("the server ended the stream"))
    }
}

#[derive(Debug)]
enum InboxChange {
    Waiting(bridge::Callback),
    Ended(PendingEnd),
}

/// Session and callback.
type Key = (String, String);

/// The callbacks that wait. Turns what the server sends into changes of the list, also over several streams.
#[derive(Default)]
struct Inbox {
    waiting: HashMap<Key, bridge::Callback>,
    /// Those that a new stream, or one after a reset, has not confirmed yet.
    unconfirmed: HashSet<Key>,
}

impl Inbox {
    /// Notes that the server lists all callbacks again.
    fn restart(&mut self) {
        self.unconfirmed = self.waiting.keys().cloned().collect();
    }

    fn take(&mut self, response: bridge::WatchPendingResponse) -> Vec<InboxChange> {
        match response.change {
            Some(Change::Requested(callback)) => {
                let key = (callback.session_id.clone(), callback.callback_id.clone());
                self.unconfirmed.remove(&key);
                if self.waiting.contains_key(&key) {
                    return Vec::new();
                }
                self.waiting.insert(key, callback.clone());
                vec![InboxChange::Waiting(callback)]
            }
            Some(Change::Resolved(ended)) => {
                let resolved = ended.resolved.unwrap_or_default();
                let key = (ended.session_id, resolved.callback_id.clone());
                self.end(&key, Some(resolved)).into_iter().collect()
            }
            Some(Change::Unmatched(session)) => {
                let keys: Vec<_> = self.waiting.keys().filter(|key| key.0 == session.session_id).cloned().collect();
                keys.iter().filter_map(|key| self.end(key, None)).collect()
            }
            Some(Change::Reset(_)) => {
                self.restart();
                Vec::new()
            }
            Some(Change::CaughtUp(_)) => {
                let keys = std::mem::take(&mut self.unconfirmed);
                keys.iter().filter_map(|key| self.end(key, None)).collect()
            }
            Some(Change::Heartbeat(_)) | None => Vec::new(),
        }
    }

    fn end(&mut self, key: &Key, resolved: Option<bridge::CallbackResolved>) -> Option<InboxChange> {
        self.unconfirmed.remove(key);
        let proto = self.waiting.remove(key)?;
        Some(InboxChange::Ended(PendingEnd { proto, resolved }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn requested(session_id: &str, callback_id: &str) -> Change {
        let (session_id, callback_id) = (session_id.to_owned(), callback_id.to_owned());
        Change::Requested(bridge::Callback { session_id, callback_id, ..Default::default() })
    }

    /// The changes as text: + for a callback that waits, - for one that has ended, ! if the server said how.
    fn take(inbox: &mut Inbox, change: Change) -> Vec<String> {
        let changes = inbox.take(bridge::WatchPendingResponse { change: Some(change) });
        let mut texts: Vec<_> = changes
            .into_iter()
            .map(|change| match change {
                InboxChange::Waiting(callback) => format!("+{}", callback.callback_id),
                InboxChange::Ended(end) if end.resolved.is_some() => format!("!{}", end.proto.callback_id),
                InboxChange::Ended(end) => format!("-{}", end.proto.callback_id),
            })
            .collect();
        texts.sort();
        texts
    }

    #[test]
    fn each_callback_waits_once_and_ends_once() {
        let mut inbox = Inbox::default();
        assert_eq!(take(&mut inbox, requested("s1", "a")), ["+a"]);
        assert_eq!(take(&mut inbox, requested("s1", "b")), ["+b"]);
        assert_eq!(take(&mut inbox, requested("s2", "c")), ["+c"]);
        let nothing: [&str; 0] = [];
        assert_eq!(take(&mut inbox, Change::CaughtUp(Default::default())), nothing);
        let resolved = bridge::CallbackResolved { callback_id: "a".into(), ..Default::default() };
        let resolved = bridge::PendingResolved { session_id: "s1".into(), resolved: Some(resolved) };
        assert_eq!(take(&mut inbox, Change::Resolved(resolved.clone())), ["!a"]);
        assert_eq!(take(&mut inbox, Change::Resolved(resolved)), nothing);
        inbox.restart(); // another stream, on which b is no longer listed
        assert_eq!(take(&mut inbox, requested("s2", "c")), nothing);
        assert_eq!(take(&mut inbox, requested("s2", "d")), ["+d"]);
        assert_eq!(take(&mut inbox, Change::CaughtUp(Default::default())), ["-b"]);
        assert_eq!(take(&mut inbox, Change::Reset(Default::default())), nothing);
        assert_eq!(take(&mut inbox, requested("s2", "d")), nothing);
        assert_eq!(take(&mut inbox, Change::CaughtUp(Default::default())), ["-c"]);
        let unmatched = bridge::PendingUnmatched { session_id: "s2".into() };
        assert_eq!(take(&mut inbox, Change::Unmatched(unmatched)), ["-d"]);
    }
}
