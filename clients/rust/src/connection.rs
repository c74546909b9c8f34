//! A connection to a server: the channel, its stubs and its policies.

use std::future::Future;
use std::sync::OnceLock;
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
use crate::retry::{Backoff, Reconnect};
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
    /// Time limit of leaving a session.
    pub(crate) close_timeout: Duration,
    /// The private server, which ends with the last use of the connection.
    pub(crate) server: Option<ServerProcess>,
    /// The end of the time to leave sessions while the program's runtime shuts down.
    pub(crate) shutdown_by: OnceLock<std::time::Instant>,
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

    /// Whether the server refused the token that a call sent, and there is another one now.
    async fn has_newer_token(&self, error: &Error) -> bool {
        match (&self.token, error.refused_token()) {
            (Some(token), Some(generation)) => token.is_newer_than(generation).await,
            _ => false,
        }
    }

    /// Whether another attempt may help after an error. A replaced token is a reason for one.
    pub(crate) async fn may_help(&self, backoff: &mut Backoff, cause: &Error) -> bool {
        cause.is_broken() || (self.has_newer_token(cause).await && backoff.note_replaced_token())
    }

    /// Decides after the end of a stream whether to open it again, and waits before that.
    pub(crate) async fn may_reopen(&self, backoff: &mut Backoff, cause: &Error) -> bool {
        self.may_help(backoff, cause).await && backoff.wait(cause).await
    }

    /// Makes a unary call within the client's time limit, and notes the position in its trailers. A call whose token
    /// has been replaced is made once more.
    pub(crate) async fn call<T, F>(&self, progress: Option<&Progress>, mut call: impl FnMut() -> F) -> Result<T>
    where
        F: Future<Output = Reply<T>>,
    {
        match self.call_once(progress, call()).await {
            Err(error) if self.has_newer_token(&error).await => self.call_once(progress, call()).await,
            reply => reply,
        }
    }

    async fn call_once<T>(&self, progress: Option<&Progress>, call: impl Future<Output = Reply<T>>) -> Result<T> {
        let reply = bounded(self.timeout, call).await?;
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
        self.repeat_with(self.reconnect.of_calls(), || self.call_once(progress, call())).await
    }

    /// Makes an idempotent call until it succeeds or fails for good.
    pub(crate) async fn repeat_with<T, F>(&self, policy: Reconnect, mut call: impl FnMut() -> F) -> Result<T>
    where
        F: Future<Output = Result<T>>,
    {
        let mut backoff = Backoff::new(policy);
        loop {
            let error = match call().await {
                Ok(value) => return Ok(value),
                Err(error) => error,
            };
            // The time limit is the caller's.
            if error.code() == Code::DeadlineExceeded || !self.may_reopen(&mut backoff, &error).await {
                return Err(error);
            }
        }
    }

    /// Ends a participation, by its token. Repeats the call until it succeeds or fails for good.
    pub(crate) async fn leave(&self, request: bridge::LeaveRequest) -> Result<()> {
        self.leave_on(&self.channel, request).await
    }

    async fn leave_on(&self, channel: &Channel, request: bridge::LeaveRequest) -> Result<()> {
        self.repeat_with(self.reconnect.of_leaving(), || {
            let (mut callbacks, request) = (CallbackServiceClient::new(channel.clone()), request.clone());
            async move { Ok(callbacks.leave(request).await?) }
        })
        .await
        .map(|_| ())
    }

    /// As `leave`, from a thread whose runtime shuts down, so that neither it nor the channel can be used. The limit is
    /// one for all participants of the client.
    pub(crate) fn leave_at_shutdown(&self, request: bridge::LeaveRequest) -> Result<()> {
        let until = *self.shutdown_by.get_or_init(|| std::time::Instant::now() + self.close_timeout);
        let leaving = || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            let runtime = runtime.map_err(|error| Error::lost(format!("no runtime: {error}")))?;
            runtime.block_on(async {
                let leaving = async { self.leave_on(&self.channel.reopen().await?, request).await };
                let left = tokio::time::timeout_at(until.into(), leaving).await;
                left.unwrap_or_else(|_| Err(Error::lost("the server does not reply")))
            })
        };
        // A runtime cannot block a thread of another one.
        let ended = std::thread::scope(|scope| scope.spawn(leaving).join());
        ended.unwrap_or_else(|_| Err(Error::lost("the token's function panicked")))
    }

    /// Reads a callback with its request, in pieces.
    pub(crate) async fn read_callback(&self, session_id: &str, callback_id: &str) -> Result<bridge::Callback> {
        let request = bridge::ReadCallbackRequest {
            session_id: session_id.to_owned(),
            callback_id: callback_id.to_owned(),
            ..Default::default()
        };
        let read = || async {
            let mut stream = self.callbacks().read_callback(request.clone()).await?.into_inner();
            let mut bytes = Vec::new();
            while let Some(piece) = stream.message().await? {
                bytes.extend(piece.chunk);
            }
            Ok(bytes)
        };
        let bytes = self.repeat_with(self.reconnect.of_calls(), read).await?;
        bridge::Callback::decode(&*bytes).map_err(|error| Error::new(Reason::Internal, error.to_string()))
    }

    /// Checks that the server answers, accepts the caller, and works with this library.
    pub(crate) async fn check(&self, target: &str, limit: Duration) -> Result<()> {
        let reply = self
            .repeat_with(self.reconnect.of_connecting(), || async {
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
        check_version(&info.version, target)
    }
}

/// Makes a closure that calls a method with a request, for calls that may be made more than once.
macro_rules! method {
    ($connection:expr, $stubs:ident.$method:ident($request:expr)) => {
        || {
            let (mut stubs, request) = ($connection.$stubs(), $request.clone());
            async move { stubs.$method(request).await }
        }
    };
}
pub(crate) use method;

pub(crate) type Reply<T> = std::result::Result<Response<T>, Status>;

/// Makes a call within a time limit.
pub(crate) async fn within<T>(limit: Duration, call: impl Future<Output = Reply<T>>) -> Result<Response<T>> {
    match tokio::time::timeout(limit, call).await {
        Ok(reply) => Ok(reply?),
        Err(_) => Err(Error::new(Reason::DeadlineExceeded, format!("no reply within {limit:?}"))),
    }
}

/// Makes a call within a time limit, if there is one.
pub(crate) async fn bounded<T>(limit: Option<Duration>, call: impl Future<Output = Reply<T>>) -> Result<Response<T>> {
    match limit {
        Some(limit) => within(limit, call).await,
        None => Ok(call.await?),
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

    async fn connection(token: Option<Token>) -> Connection {
        let target = crate::target::Target::parse("unix:/nowhere").unwrap();
        Connection {
            channel: crate::channel::open(&target, Default::default()).await.unwrap(),
            token,
            name: String::new(),
            reconnect: Reconnect::default(),
            timeout: None,
            close_timeout: Duration::ZERO,
            server: None,
            shutdown_by: OnceLock::new(),
        }
    }

    #[tokio::test(start_paused = true)]
    async fn calls_are_repeated_only_after_broken_connections() {
        let connection = connection(None).await;
        for (error, repeats) in [
            (Error::lost("cut"), true),
            (Error::new(Reason::Draining, ""), true),
            (Error::new(Reason::DeadlineExceeded, ""), false),
            (Error::new(Reason::SessionNotFound, ""), false),
            (Error::new(Reason::Unauthenticated, ""), false),
            (Error::closed("s", "closed"), false),
        ] {
            let mut calls = 0;
            let result = connection.repeat_with(Reconnect::default(), || {
                calls += 1;
                let result = if calls == 3 { Ok(7) } else { Err(error.clone()) };
                async move { result }
            });
            assert_eq!((result.await.ok(), calls), if repeats { (Some(7), 3) } else { (None, 1) }, "{error}");
        }
    }

    fn refusal(generation: u64) -> Status {
        let mut status = Status::unauthenticated("the token has expired");
        status.metadata_mut().insert(crate::channel::TOKEN_GENERATION, generation.into());
        status
    }

    #[tokio::test(start_paused = true)]
    async fn replaced_token_is_a_reason_for_one_attempt() {
        let numbers = std::sync::atomic::AtomicU64::new(0);
        let fresh = Token::function(move || {
            let number = numbers.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            std::future::ready(Ok::<_, Error>(number.to_string()))
        });
        for (token, attempts) in [(fresh, 2), (Token::fixed("same"), 1)] {
            let connection = connection(Some(token.clone())).await;
            let mut calls = 0;
            let refused = || {
                calls += 1;
                let token = token.clone();
                async move { Err::<Response<()>, _>(refusal(token.value().await.unwrap().1)) }
            };
            assert_eq!(connection.call(None, refused).await.unwrap_err().reason(), Reason::Unknown);
            assert_eq!(calls, attempts);
            calls = 0;
            let refused = || {
                calls += 1;
                let token = token.clone();
                async move { Err::<(), _>(Error::from(refusal(token.value().await.unwrap().1))) }
            };
            assert_eq!(
                connection.repeat_with(Reconnect::default(), refused).await.unwrap_err().code(),
                Code::Unauthenticated
            );
            assert_eq!(calls, attempts);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn calls_that_fail_together_are_each_repeated() {
        let text = std::sync::Arc::new(std::sync::Mutex::new("old"));
        let source = text.clone();
        let token = Token::function(move || std::future::ready(Ok::<_, Error>(source.lock().unwrap().to_string())));
        let connection = connection(Some(token.clone())).await;
        let (_, sent) = token.value().await.unwrap();
        *text.lock().unwrap() = "new";
        for _ in 0..2 {
            let mut calls = 0;
            let reply = connection.call(None, || {
                calls += 1;
                std::future::ready(if calls == 1 { Err(refusal(sent)) } else { Ok(Response::new(7)) })
            });
            assert_eq!((reply.await.ok(), calls), (Some(7), 2));
        }
    }
}
