//! The client.

use std::fmt;
use std::sync::Arc;

use tokio::io::AsyncRead;

use crate::bridge::v1 as bridge;
use crate::channel::Channel;
use crate::cli::v1 as cli;
use crate::connect::Connect;
use crate::connection::{Connection, method};
use crate::error::{Error, Result};
use crate::events::Values;
use crate::frames::{audible, silence_of};
use crate::inbox::{PendingCallback, WatchPending};
use crate::info::{SessionChange, SessionInfo};
use crate::open::{How, ParticipantOptions, SessionOptions};
use crate::prompt::Prompt;
use crate::retry::Backoff;
use crate::session::Session;
use crate::transfer::ImportSession;
use crate::turn::Outcome;

/// A client of one server. Cheap to clone; all methods may run concurrently.
#[derive(Clone)]
pub struct Client(Arc<Connection>);

impl Client {
    /// Connects to a server: `unix:PATH` or `HOST:PORT`. The future checks that the server answers, accepts the caller,
    /// and has a version that works; see [`Connect`] for its options.
    ///
    /// ```no_run
    /// # async fn example() -> copilot_grpc::Result<()> {
    /// use copilot_grpc::{Client, Token};
    ///
    /// let local = Client::connect("unix:/run/copilot-grpc.sock").await?;
    /// let remote = Client::connect("agents.example:443").token(Token::file("/run/secrets/token")).await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn connect(target: impl Into<String>) -> Connect {
        Connect::new(Some(target.into()), None)
    }

    /// Connects to the server that the environment variable `COPILOT_GRPC_TARGET` names; else to the default socket of
    /// `copilot-grpc serve`, if a server listens there; else starts a private server with `copilot-grpc` from `PATH`.
    pub fn connect_default() -> Connect {
        Connect::default()
    }

    /// Starts a private server with `copilot-grpc` from `PATH`. The server ends with the last use of the client, and with
    /// this program at the latest. So do its sessions, unless [`Connect::server_args`] have a `--data-dir`.
    pub fn launch() -> Connect {
        Connect::new(None, Some(true))
    }

    pub(crate) fn new(connection: Arc<Connection>) -> Self {
        Self(connection)
    }

    pub(crate) fn connection(&self) -> Arc<Connection> {
        self.0.clone()
    }

    /// The connection, for the generated clients of `copilot.cli.v1`.
    pub fn channel(&self) -> Channel {
        self.0.channel.clone()
    }

    // Sessions.

    /// Creates a session and joins it. Leaving the session does not end it unless its lifetime says so.
    ///
    /// ```no_run
    /// # async fn example(client: copilot_grpc::Client) -> copilot_grpc::Result<()> {
    /// use copilot_grpc::permission;
    ///
    /// let session = client.create_session().on_permission(permission::approve_all).await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn create_session(&self) -> SessionOptions {
        SessionOptions::new(self.clone(), How::Create, String::new())
    }

    /// Opens a session, from the CLI's history if necessary, and joins it. Adds a `session.resume` event.
    pub fn resume_session(&self, session_id: impl Into<String>) -> SessionOptions {
        SessionOptions::new(self.clone(), How::Resume, session_id.into())
    }

    /// Opens the session with this id, in whatever state it is, or creates it if there is none, and joins it. Programs that
    /// do so at the same time get the same session. Labels, node labels and the cloud's repository matter only for a new one.
    ///
    /// ```no_run
    /// # async fn example(client: copilot_grpc::Client) -> copilot_grpc::Result<()> {
    /// let session = client.open_session("review-7").label("team", "payments").await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn open_session(&self, session_id: impl Into<String>) -> SessionOptions {
        SessionOptions::new(self.clone(), How::ResumeOrCreate, session_id.into())
    }

    /// Joins an open session, without a trace in its history.
    pub fn join_session(&self, session_id: impl Into<String>) -> ParticipantOptions {
        SessionOptions::new(self.clone(), How::Join, session_id.into())
    }

    /// A handle on a session: it sends, watches and resolves, and has no tools and handlers. Makes no call.
    pub fn session(&self, session_id: impl Into<String>) -> Session {
        Session::handle(self.connection(), session_id.into())
    }

    /// Creates a session for one prompt, waits for the end of its turn, and deletes the session.
    pub async fn run(&self, prompt: impl Into<Prompt>) -> Result<Outcome> {
        let session = self.create_session().lifetime(bridge::Lifetime::EndWithLastParticipant).await?;
        let outcome = session.send_and_wait(prompt).abort_on_drop().await;
        session.delete().await?;
        outcome
    }

    /// The state of a session.
    pub async fn get_session(&self, session_id: impl Into<String>) -> Result<SessionInfo> {
        self.session(session_id).get().await
    }

    /// The caller's sessions, most recently used first. `filter` selects among them; `include_history` adds those of the
    /// CLI's history that were never opened through the server, such as those of a person at a terminal with the same
    /// home.
    pub fn list_sessions(&self, request: bridge::ListSessionsRequest) -> Values<SessionInfo> {
        let state = (self.connection(), Some(request), Vec::<bridge::Session>::new().into_iter());
        Values::new(state, |(connection, mut request, mut page)| async move {
            loop {
                if let Some(session) = page.next() {
                    return (Some(Ok(session.into())), (connection, request, page));
                }
                let Some(mut next) = request.take() else { return (None, (connection, None, page)) };
                let reply = connection.repeat(None, method!(connection, sessions.list_sessions(next)));
                let reply = match reply.await {
                    Ok(reply) => reply,
                    Err(error) => return (Some(Err(error)), (connection, None, page)),
                };
                page = reply.sessions.into_iter();
                next.page_token = reply.next_page_token;
                request = Some(next).filter(|next| !next.page_token.is_empty());
            }
        })
    }

    /// Id of the most recently used session.
    pub async fn last_session_id(&self) -> Result<Option<String>> {
        let connection = &self.0;
        let reply = connection.repeat(None, || {
            let mut sessions = connection.sessions();
            async move { sessions.get_last_session(bridge::GetLastSessionRequest::default()).await }
        });
        Ok(Some(reply.await?.session_id).filter(|id| !id.is_empty()))
    }

    /// Deletes a session and its history.
    pub async fn delete_session(&self, session_id: impl Into<String>) -> Result<()> {
        self.session(session_id).delete().await
    }

    /// Makes a session of an archive that [`Session::export_to`] wrote; the future sends the archive while it reads it.
    /// [`resume_session`](Self::resume_session) opens the session, with the secrets, tools and handlers that archives lack.
    /// If the server refuses the archive, or the future is dropped before the archive's end, nothing is left of the import.
    pub fn import_session(&self, archive: impl AsyncRead + Send + 'static) -> ImportSession {
        ImportSession::new(self.connection(), Box::pin(archive))
    }

    /// Changes of the caller's sessions: first one for each open session, then changes as they happen.
    ///
    /// After a broken connection the stream begins again with the open sessions.
    pub fn watch_sessions(&self) -> Values<SessionChange> {
        self.watch_sessions_with(bridge::WatchSessionsRequest::default())
    }

    /// As [`watch_sessions`](Self::watch_sessions), with a filter and other options. Heartbeats are left out.
    pub fn watch_sessions_with(&self, request: bridge::WatchSessionsRequest) -> Values<SessionChange> {
        let connection = self.connection();
        let backoff = Backoff::new(connection.reconnect);
        let state = (connection, request, None, backoff);
        Values::new(state, |(connection, request, mut stream, mut backoff)| async move {
            loop {
                match next_change(&connection, &request, &mut stream).await {
                    Ok(change) => {
                        backoff.reset();
                        if change.change() != bridge::SessionChange::Heartbeat {
                            return (Some(Ok(change.into())), (connection, request, stream, backoff));
                        }
                    }
                    Err(cause) => {
                        stream = None;
                        if !connection.may_reopen(&mut backoff, &cause).await {
                            return (Some(Err(cause)), (connection, request, stream, backoff));
                        }
                    }
                }
            }
        })
    }

    /// What the models of sessions were used for, in rows of the groups that the request names. Without a session it
    /// sums all sessions that the caller can see.
    pub async fn usage(&self, request: bridge::GetUsageRequest) -> Result<Vec<bridge::UsageRow>> {
        let connection = &self.0;
        Ok(connection.repeat(None, method!(connection, sessions.get_usage(request))).await?.rows)
    }

    // The server.

    /// The server's version, capabilities and limits.
    pub async fn server_info(&self) -> Result<bridge::GetServerInfoResponse> {
        let connection = &self.0;
        let reply = connection.repeat(None, || {
            let mut runtimes = connection.runtimes();
            async move { runtimes.get_server_info(bridge::GetServerInfoRequest {}).await }
        });
        reply.await
    }

    /// Pings the CLI, and starts it if it does not run.
    pub async fn ping(&self) -> Result<bridge::PingResponse> {
        let connection = &self.0;
        connection.call(None, method!(connection, runtimes.ping(bridge::PingRequest::default()))).await
    }

    /// Whether the CLI is signed in to GitHub, and as whom.
    pub async fn auth_status(&self) -> Result<bridge::GetAuthStatusResponse> {
        let (connection, request) = (&self.0, bridge::GetAuthStatusRequest::default());
        connection.call(None, method!(connection, runtimes.get_auth_status(request))).await
    }

    /// The models of the signed-in account.
    pub async fn list_models(&self) -> Result<Vec<cli::Model>> {
        let (connection, request) = (&self.0, bridge::ListModelsRequest::default());
        Ok(connection.call(None, method!(connection, runtimes.list_models(request))).await?.models)
    }

    /// The pending callbacks of all sessions, oldest first.
    pub async fn pending(&self) -> Result<Vec<PendingCallback>> {
        crate::inbox::pending(&self.0, None, String::new()).await
    }

    /// An inbox of the callbacks that wait in all sessions, present and future; see [`WatchPending`] for its options.
    ///
    /// ```no_run
    /// # async fn example(client: copilot_grpc::Client) -> copilot_grpc::Result<()> {
    /// use copilot_grpc::{PendingChange, answers};
    ///
    /// let mut changes = client.watch_pending().handle().stream();
    /// while let Some(change) = changes.next().await {
    ///     if let PendingChange::Waiting(pending) = change? {
    ///         pending.answer(answers::approve()).await?;
    ///     }
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn watch_pending(&self) -> WatchPending {
        WatchPending::new(self.connection())
    }

    /// Ends a private server and waits for its end. Any other server is left alone; dropping a client is enough.
    pub async fn close(&self) {
        if let Some(server) = &self.0.server {
            server.stop().await;
        }
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Client")
    }
}

async fn next_change(
    connection: &Connection,
    request: &bridge::WatchSessionsRequest,
    stream: &mut Option<tonic::Streaming<bridge::WatchSessionsResponse>>,
) -> Result<bridge::WatchSessionsResponse> {
    let options = bridge::StreamOptions { heartbeat_interval: request.heartbeat_interval, ..Default::default() };
    let silence = silence_of(Some(&options));
    let stream = match stream {
        Some(stream) => stream,
        None => {
            let mut events = connection.events();
            let opened = audible(silence, events.watch_sessions(request.clone())).await?;
            stream.insert(opened.into_inner())
        }
    };
    audible(silence, stream.message()).await?.ok_or_else(|| Error::lost("the server ended the stream"))
}
