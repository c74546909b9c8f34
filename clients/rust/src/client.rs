//! The client.

use std::ffi::OsString;
use std::fmt;
use std::future::{Future, IntoFuture};
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use crate::bridge::v1 as bridge;
use crate::channel::{Channel, ChannelOptions, Pem, open};
use crate::cli::v1 as cli;
use crate::connection::Connection;
use crate::error::{Error, Reason, Result};
use crate::events::{Values, audible, silence_of};
use crate::open::{Create, Join, Resume, SessionBuilder};
use crate::prompt::Prompt;
use crate::retry::{Backoff, Reconnect};
use crate::server::{Launch, ServerProcess};
use crate::session::Session;
use crate::target::{Target, default_socket, is_listening};
use crate::token::Token;
use crate::turn::Outcome;

const TARGET: &str = "COPILOT_GRPC_TARGET";

/// A client of one server. Cheap to clone; all methods may run concurrently.
#[derive(Clone)]
pub struct Client(Arc<Inner>);

struct Inner {
    connection: Arc<Connection>,
    info: bridge::GetServerInfoResponse,
}

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
        Connect { target: Some(target.into()), ..Connect::default() }
    }

    /// Connects to the server that the environment variable `COPILOT_GRPC_TARGET` names; else to the default socket of
    /// `copilot-grpc serve`, if a server listens there; else starts a private server with `copilot-grpc` from `PATH`.
    pub fn connect_default() -> Connect {
        Connect::default()
    }

    /// Starts a private server with `copilot-grpc` from `PATH`. The server ends with the last use of the client, and with
    /// this program at the latest.
    pub fn launch() -> Connect {
        Connect { launch: Some(true), ..Connect::default() }
    }

    pub(crate) fn connection(&self) -> Arc<Connection> {
        self.0.connection.clone()
    }

    /// The connection, for the generated clients of `copilot.cli.v1`.
    pub fn channel(&self) -> Channel {
        self.0.connection.channel.clone()
    }

    /// The server's version, capabilities and limits when the client connected.
    pub fn info(&self) -> &bridge::GetServerInfoResponse {
        &self.0.info
    }

    // Sessions.

    /// Creates a session and joins it. Leaving the session does not end it unless its lifetime says so.
    ///
    /// ```no_run
    /// # async fn example(client: copilot_grpc::Client) -> copilot_grpc::Result<()> {
    /// use copilot_grpc::permission;
    ///
    /// let session = client.create_session().on_permission(permission::approve_all).streaming(true).await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn create_session(&self) -> SessionBuilder<Create> {
        SessionBuilder::new(self.clone(), String::new())
    }

    /// Opens a session, from the CLI's history if necessary, and joins it. Adds a `session.resume` event.
    pub fn resume_session(&self, session_id: impl Into<String>) -> SessionBuilder<Resume> {
        SessionBuilder::new(self.clone(), session_id.into())
    }

    /// Joins an open session, without a trace in its history.
    pub fn join_session(&self, session_id: impl Into<String>) -> SessionBuilder<Join> {
        SessionBuilder::new(self.clone(), session_id.into())
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
    pub async fn get_session(&self, session_id: impl Into<String>) -> Result<bridge::Session> {
        self.session(session_id).get().await
    }

    /// The caller's sessions, most recently used first.
    pub fn list_sessions(&self, filter: bridge::SessionFilter) -> Values<bridge::Session> {
        let request = bridge::ListSessionsRequest { filter: Some(filter), ..Default::default() };
        let state = (self.connection(), Some(request), Vec::<bridge::Session>::new().into_iter());
        Values::new(state, |(connection, mut request, mut page)| async move {
            loop {
                if let Some(session) = page.next() {
                    return (Some(Ok(session)), (connection, request, page));
                }
                let Some(mut next) = request.take() else { return (None, (connection, None, page)) };
                let reply = connection.repeat(None, || {
                    let (mut sessions, request) = (connection.sessions(), next.clone());
                    async move { sessions.list_sessions(request).await }
                });
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
        let connection = &self.0.connection;
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

    /// Changes of the caller's sessions: first one for each open session, then changes as they happen.
    ///
    /// After a broken connection the stream begins again with the open sessions.
    pub fn watch_sessions(&self) -> Values<bridge::WatchSessionsResponse> {
        let connection = self.connection();
        let backoff = Backoff::new(connection.reconnect);
        let state = (connection, None, backoff);
        Values::new(state, |(connection, mut stream, mut backoff)| async move {
            loop {
                match next_change(&connection, &mut stream).await {
                    Ok(change) => {
                        backoff.reset();
                        if change.change() != bridge::SessionChange::Heartbeat {
                            return (Some(Ok(change)), (connection, stream, backoff));
                        }
                    }
                    Err(cause) => {
                        stream = None;
                        if !connection.may_reopen(&mut backoff, &cause).await {
                            return (Some(Err(cause)), (connection, stream, backoff));
                        }
                    }
                }
            }
        })
    }

    // The server.

    /// The server's version, capabilities and limits.
    pub async fn server_info(&self) -> Result<bridge::GetServerInfoResponse> {
        let connection = &self.0.connection;
        let reply = connection.repeat(None, || {
            let mut runtimes = connection.runtimes();
            async move { runtimes.get_server_info(bridge::GetServerInfoRequest {}).await }
        });
        reply.await
    }

    /// Pings the CLI, and starts it if it does not run.
    pub async fn ping(&self) -> Result<bridge::PingResponse> {
        let mut runtimes = self.0.connection.runtimes();
        self.0.connection.call(None, runtimes.ping(bridge::PingRequest::default())).await
    }

    /// Whether the CLI is signed in to GitHub, and as whom.
    pub async fn auth_status(&self) -> Result<bridge::GetAuthStatusResponse> {
        let mut runtimes = self.0.connection.runtimes();
        self.0.connection.call(None, runtimes.get_auth_status(bridge::GetAuthStatusRequest::default())).await
    }

    /// The models of the signed-in account.
    pub async fn list_models(&self) -> Result<Vec<cli::Model>> {
        let mut runtimes = self.0.connection.runtimes();
        let reply = runtimes.list_models(bridge::ListModelsRequest::default());
        Ok(self.0.connection.call(None, reply).await?.models)
    }

    /// The pending callbacks of all sessions, oldest first.
    pub async fn pending(&self) -> Result<Vec<bridge::Callback>> {
        let (connection, mut found) = (&self.0.connection, Vec::new());
        let mut request = bridge::ListPendingRequest::default();
        loop {
            let page = connection.repeat(None, || {
                let (mut callbacks, request) = (connection.callbacks(), request.clone());
                async move { callbacks.list_pending(request).await }
            });
            let page = page.await?;
            found.extend(page.callbacks);
            request.page_token = page.next_page_token;
            if request.page_token.is_empty() {
                return Ok(found);
            }
        }
    }

    /// Ends a private server and waits for its end. Any other server is left alone; dropping a client is enough.
    pub async fn close(&self) {
        if let Some(server) = &self.0.connection.server {
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
    stream: &mut Option<tonic::Streaming<bridge::WatchSessionsResponse>>,
) -> Result<bridge::WatchSessionsResponse> {
    let silence = silence_of(None);
    let stream = match stream {
        Some(stream) => stream,
        None => {
            let mut events = connection.events();
            let opened = audible(silence, events.watch_sessions(bridge::WatchSessionsRequest::default())).await?;
            stream.insert(opened.into_inner())
        }
    };
    audible(silence, stream.message()).await?.ok_or_else(|| Error::lost("the server ended the stream"))
}

/// Connects to a server; `await` it. See [`Client::connect`].
#[must_use = "await the value to connect"]
#[derive(Clone, Debug)]
pub struct Connect {
    target: Option<String>,
    channel: ChannelOptions,
    name: String,
    reconnect: Reconnect,
    timeout: Option<Duration>,
    connect_timeout: Duration,
    launch: Option<bool>,
    server: Launch,
}

impl Default for Connect {
    fn default() -> Self {
        Self {
            target: None,
            channel: ChannelOptions::default(),
            name: String::new(),
            reconnect: Reconnect::default(),
            timeout: Some(Duration::from_secs(60)),
            connect_timeout: Duration::from_secs(20),
            launch: None,
            server: Launch::default(),
        }
    }
}

impl Connect {
    /// A bearer token: a text, or a [`Token`] that changes.
    pub fn token(mut self, token: impl Into<Token>) -> Self {
        self.channel.token = Some(token.into());
        self
    }

    /// Certificates that sign the server's; default: the system's. TLS is used for all targets except unix sockets and
    /// loopback addresses, and for the latter if a certificate is given.
    pub fn ca(mut self, ca: impl Into<Pem>) -> Self {
        self.channel.ca = Some(ca.into());
        self
    }

    /// This client's certificate and its key.
    pub fn identity(mut self, certificate: impl Into<Pem>, key: impl Into<Pem>) -> Self {
        self.channel.identity = Some((certificate.into(), key.into()));
        self
    }

    /// Name in the server's certificate, if the target has another one.
    pub fn server_name(mut self, name: impl Into<String>) -> Self {
        self.channel.server_name = Some(name.into());
        self
    }

    /// Does not use TLS for another machine. Not with a token or a certificate.
    pub fn insecure(mut self) -> Self {
        self.channel.insecure = true;
        self
    }

    /// Name of this program as a participant, for users and logs.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = name.into();
        self
    }

    /// How broken streams are opened again.
    pub fn reconnect(mut self, policy: Reconnect) -> Self {
        self.reconnect = policy;
        self
    }

    /// Time limit of each unary call; default 60 s, none for no limit. `send_and_wait` has none by default.
    pub fn timeout(mut self, limit: impl Into<Option<Duration>>) -> Self {
        self.timeout = limit.into();
        self
    }

    /// Time limit of the check; default 20 s.
    pub fn connect_timeout(mut self, limit: Duration) -> Self {
        self.connect_timeout = limit;
        self
    }

    /// The binary of a private server; default `copilot-grpc` on `PATH`.
    pub fn binary(mut self, path: impl Into<PathBuf>) -> Self {
        self.server.binary = path.into();
        self
    }

    /// Further arguments of `copilot-grpc serve` for a private server.
    pub fn server_args<S: Into<OsString>>(mut self, arguments: impl IntoIterator<Item = S>) -> Self {
        self.server.args.extend(arguments.into_iter().map(Into::into));
        self
    }

    /// A further environment variable of a private server.
    pub fn server_env(mut self, name: impl Into<OsString>, value: impl Into<OsString>) -> Self {
        self.server.env.push((name.into(), value.into()));
        self
    }

    async fn connect(self) -> Result<Client> {
        let target = match (&self.target, self.launch) {
            (Some(target), _) => Some(target.clone()),
            (None, Some(true)) => None,
            (None, _) => default_target().await,
        };
        let (server, target) = match target {
            Some(target) => (None, target),
            None => {
                let server = ServerProcess::start(self.server, |_| Ok(Vec::new())).await?;
                let target = server.target();
                (Some(server), target)
            }
        };
        let token = self.channel.token.clone();
        let connection = Connection {
            channel: open(&Target::parse(&target)?, self.channel).await?,
            token,
            name: self.name,
            reconnect: self.reconnect,
            timeout: self.timeout,
            server,
        };
        let info = match connection.check(&target, self.connect_timeout).await {
            Err(error) if error.is_broken() && error.reason() != Reason::DeadlineExceeded => {
                let remedy = format!("start it with `copilot-grpc serve`, or set {TARGET}");
                let text = format!("no server at {target} ({}): {remedy}", error.message());
                return Err(Error::new(Reason::ServerNotFound, text));
            }
            info => info?,
        };
        Ok(Client(Arc::new(Inner { connection: Arc::new(connection), info })))
    }
}

/// The server of the environment, or the one on the default socket; none if none listens.
async fn default_target() -> Option<String> {
    if let Some(target) = std::env::var(TARGET).ok().filter(|target| !target.is_empty()) {
        return Some(target);
    }
    let socket = default_socket();
    is_listening(&socket).await.then(|| format!("unix:{}", socket.display()))
}

impl IntoFuture for Connect {
    type Output = Result<Client>;
    type IntoFuture = Pin<Box<dyn Future<Output = Result<Client>> + Send>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.connect())
    }
}
