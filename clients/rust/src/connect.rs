//! Connecting to servers.

use std::ffi::OsString;
use std::future::{Future, IntoFuture};
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use crate::channel::{ChannelOptions, Pem, open};
use crate::client::Client;
use crate::connection::Connection;
use crate::error::{Error, Reason, Result};
use crate::retry::Reconnect;
use crate::server::{Launch, ServerProcess};
use crate::target::{Target, default_socket, is_listening};
use crate::token::Token;

const TARGET: &str = "COPILOT_GRPC_TARGET";
const TOKEN: &str = "COPILOT_GRPC_TOKEN";

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
    close_timeout: Duration,
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
            close_timeout: Duration::from_secs(5),
            launch: None,
            server: Launch::default(),
        }
    }
}

impl Connect {
    pub(crate) fn new(target: Option<String>, launch: Option<bool>) -> Self {
        Self { target, launch, ..Self::default() }
    }

    /// A bearer token: a text, or a [`Token`] that changes. Default: the environment variable `COPILOT_GRPC_TOKEN`, except
    /// for unix sockets.
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

    /// Time for which a session that is closed or dropped tries to leave; default 5 s. A program whose runtime shuts down
    /// waits no longer than that, for all sessions together.
    pub fn close_timeout(mut self, limit: Duration) -> Self {
        self.close_timeout = limit;
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
        let address = Target::parse(&target)?;
        let mut channel = self.channel;
        if channel.token.is_none() && !matches!(address, Target::Unix(_)) {
            channel.token = variable(TOKEN).map(Token::fixed);
        }
        let token = channel.token.clone();
        let connection = Connection {
            channel: open(&address, channel).await?,
            token,
            name: self.name,
            reconnect: self.reconnect,
            timeout: self.timeout,
            close_timeout: self.close_timeout,
            server,
            shutdown_by: OnceLock::new(),
        };
        match connection.check(&target, self.connect_timeout).await {
            Ok(()) => Ok(Client::new(Arc::new(connection))),
            Err(error) if error.is_broken() && error.reason() != Reason::DeadlineExceeded => {
                let remedy = format!(
                    "start it with `copilot-grpc serve`, or name another one with `Client::connect` or {TARGET}"
                );
                let text = format!("no server at {target} ({}): {remedy}", error.message());
                Err(Error::new(Reason::ServerNotFound, text))
            }
            Err(error) => Err(error),
        }
    }
}

/// A variable of the environment that has a value.
fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

/// The server of the environment, or the one on the default socket; none if none listens.
async fn default_target() -> Option<String> {
    if let Some(target) = variable(TARGET) {
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
