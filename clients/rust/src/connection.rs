//! A connection to a server: the channel, its stubs and its policies.

use std::future::Future;
use std::time::Duration;

use prost::Message;
use tonic::{Code, Response, Status};

use crate::bridge::v1 as bridge;
use crate::bridge::v1::callback_service_client::CallbackServiceClient;
use crate::bridge::v1::event_service_client::EventServiceClient;
use crate::bridge::v1::runtime_service_client::RuntimeServiceClient;
use crate::bridge::v1::session_service_client::SessionServiceClient;
use crate::channel::Channel;
use crate::error::{Error, Reason, Result};
use crate::position::Progress;
use crate::retry::{Backoff, Reconnect, repeat};
use crate::server::ServerProcess;
use crate::token::Token;

// A page of events has up to 3 MiB, and lists of callbacks and sessions have no limit in bytes.
const MAX_RECEIVE: usize = 16 << 20;
/// The versions of servers that this library works with: from the first, before the second.
const SERVER_VERSIONS: [(u64, u64); 2] = [(0, 1), (1, 0)];

/// The channel to a server with its stubs.
pub(crate) struct Connection {
    pub(crate) channel: Channel,
    pub(crate) token: Option<Token>,
    /// The name of this program as a participant.
    pub(crate) name: String,
    pub(crate) reconnect: Reconnect,
    /// Time limit of unary calls.
    pub(crate) timeout: Option<Duration>,
    /// The private server, which ends with the last use of the connection.
    pub(crate) server: Option<ServerProcess>,
}

impl Connection {
    pub(crate) fn sessions(&self) -> SessionServiceClient<Channel> {
        SessionServiceClient::new(self.channel.clone()).max_decoding_message_size(MAX_RECEIVE)
    }

    pub(crate) fn events(&self) -> EventServiceClient<Channel> {
        EventServiceClient::new(self.channel.clone()).max_decoding_message_size(MAX_RECEIVE)
    }

    pub(crate) fn callbacks(&self) -> CallbackServiceClient<Channel> {
        CallbackServiceClient::new(self.channel.clone()).max_decoding_message_size(MAX_RECEIVE)
    }

    pub(crate) fn runtimes(&self) -> RuntimeServiceClient<Channel> {
        RuntimeServiceClient::new(self.channel.clone()).max_decoding_message_size(MAX_RECEIVE)
    }

    /// Whether there is another token than the one that the server refused.
    pub(crate) async fn token_changed(&self) -> bool {
        match &self.token {
            Some(token) => token.changed().await,
            None => false,
        }
    }

    /// Decides after the end of a stream whether to open it again, and waits before that.
    pub(crate) async fn may_reopen(&self, backoff: &mut Backoff, cause: &Error) -> bool {
        let helps = cause.is_broken() || (cause.reason() == Reason::Unauthenticated && self.token_changed().await);
        helps && backoff.wait(cause).await
    }

    /// Makes a unary call within the client's time limit, and notes the position in its trailers.
    pub(crate) async fn call<T>(&self, progress: Option<&Progress>, call: impl Future<Output = Reply<T>>) -> Result<T> {
        let reply = match self.timeout {
            Some(limit) => within(limit, call).await?,
            None => call.await?,
        };
        if let Some(progress) = progress {
            progress.note_trailers(reply.metadata());
        }
        Ok(reply.into_inner())
    }

    /// Makes a unary call that may be repeated: one that only reads, or one with a request id.
    pub(crate) async fn repeat<T, F>(&self, progress: Option<&Progress>, mut call: impl FnMut() -> F) -> Result<T>
    where
        F: Future<Output = Reply<T>>,
    {
        repeat(self.reconnect.of_calls(), || self.call(progress, call())).await
    }

    /// Reads a callback with its request, in pieces.
    pub(crate) async fn read_callback(&self, session_id: &str, callback_id: &str) -> Result<bridge::Callback> {
        let request = bridge::ReadCallbackRequest {
            session_id: session_id.to_owned(),
            callback_id: callback_id.to_owned(),
            ..Default::default()
        };
        let mut stream = self.callbacks().read_callback(request).await?.into_inner();
        let mut bytes = Vec::new();
        while let Some(piece) = stream.message().await? {
            bytes.extend(piece.chunk);
        }
        bridge::Callback::decode(&*bytes).map_err(|error| Error::new(Reason::Internal, error.to_string()))
    }

    /// Checks that the server answers, accepts the caller, and works with this library.
    pub(crate) async fn check(&self, target: &str, limit: Duration) -> Result<bridge::GetServerInfoResponse> {
        let reply = repeat(self.reconnect.of_connecting(), || async {
            let mut runtimes = self.runtimes();
            within(limit, runtimes.get_server_info(bridge::GetServerInfoRequest {})).await
        })
        .await;
        let info = match reply {
            Ok(info) => info.into_inner(),
            Err(error) if error.code() == Code::Unimplemented => {
                let text = format!("the server at {target} is no copilot-grpc: {error}");
                return Err(Error::new(Reason::ServerIncompatible, text));
            }
            Err(error) => return Err(error),
        };
        check_version(&info.version, target)?;
        Ok(info)
    }
}

pub(crate) type Reply<T> = std::result::Result<Response<T>, Status>;

/// Makes a call within a time limit.
pub(crate) async fn within<T>(limit: Duration, call: impl Future<Output = Reply<T>>) -> Result<Response<T>> {
    match tokio::time::timeout(limit, call).await {
        Ok(reply) => Ok(reply?),
        Err(_) => Err(Error::new(Reason::DeadlineExceeded, format!("no reply within {limit:?}"))),
    }
}

/// Fails if a version is outside the window. Builds of developers have no such version.
fn check_version(version: &str, target: &str) -> Result<()> {
    let release = version.trim_start_matches('v').split('-').next().unwrap_or_default();
    let numbers: Vec<_> = release.split('.').map(|number| number.parse::<u64>().ok()).collect();
    let [Some(major), Some(minor), ..] = numbers[..] else { return Ok(()) };
    let [first, before] = SERVER_VERSIONS;
    if (first..before).contains(&(major, minor)) {
        return Ok(());
    }
    let window = format!("{}.{} up to, but not including, {}.{}", first.0, first.1, before.0, before.1);
    let text = format!("the server at {target} has version {version}; this library works with {window}");
    Err(Error::new(Reason::ServerIncompatible, text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions() {
        for (version, works) in [
            ("0.1.0", true),
            ("v0.9.3-rc1", true),
            ("0.0.9", false),
            ("1.0.0", false),
            ("v2.1", false),
            ("(devel)", true),
            ("", true),
        ] {
            assert_eq!(check_version(version, "t").is_ok(), works, "{version:?}");
        }
    }
}
