//! Channels: connections with credentials.

use std::future::Future;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use http::{HeaderValue, Request, Response, Uri};
use http_body_util::BodyExt;
use hyper_util::rt::TokioIo;
use tokio::net::UnixStream;
use tonic::body::Body;
use tonic::transport::Endpoint;
use tower_service::Service;

use crate::error::{Error, Result};
use crate::target::Target;
use crate::token::Token;

/// Metadata of the library itself, at the end of calls with a token.
pub(crate) const TOKEN_GENERATION: &str = "copilot-client-token-generation";

type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// A connection to a server with the client's credentials, for the generated clients. Cheap to clone.
///
/// ```no_run
/// # async fn example(client: copilot_grpc::Client) -> Result<(), Box<dyn std::error::Error>> {
/// use copilot_grpc::bridge::v1::{PingRequest, runtime_service_client::RuntimeServiceClient};
///
/// let mut stub = RuntimeServiceClient::new(client.channel());
/// println!("{:?}", stub.ping(PingRequest::default()).await?);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Channel {
    transport: tonic::transport::Channel,
    token: Option<Token>,
    settings: Arc<(Target, ChannelOptions)>,
}

impl Channel {
    /// Another connection with the same settings.
    pub(crate) async fn reopen(&self) -> Result<Self> {
        let (target, options) = &*self.settings;
        open(target, options.clone()).await
    }
}

impl Service<Request<Body>> for Channel {
    type Response = Response<Body>;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = std::result::Result<Response<Body>, BoxError>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<std::result::Result<(), BoxError>> {
        self.transport.poll_ready(cx).map_err(Into::into)
    }

    fn call(&mut self, mut request: Request<Body>) -> Self::Future {
        // The ready transport makes this call; its clone becomes ready for the next one.
        let clone = self.transport.clone();
        let mut transport = std::mem::replace(&mut self.transport, clone);
        let token = self.token.clone();
        Box::pin(async move {
            let Some(token) = token else { return Ok(transport.call(request).await?) };
            let (header, generation) =
                authorization(&token).await.map_err(|error| tonic::Status::unauthenticated(error.message()))?;
            request.headers_mut().insert(http::header::AUTHORIZATION, header);
            Ok(mark(transport.call(request).await?, generation))
        })
    }
}

async fn authorization(token: &Token) -> Result<(HeaderValue, u64)> {
    let (text, generation) = token.value().await?;
    let mut header = HeaderValue::try_from(format!("Bearer {text}"))
        .map_err(|_| Error::invalid("token", "the token is no ASCII text"))?;
    header.set_sensitive(true);
    Ok((header, generation))
}

/// Adds the generation of the token that a call sent to the trailers of its response, where [`Error`] finds it.
fn mark(mut response: Response<Body>, generation: u64) -> Response<Body> {
    let value = HeaderValue::from(generation);
    if response.headers().contains_key(tonic::Status::GRPC_STATUS) {
        response.headers_mut().insert(TOKEN_GENERATION, value); // a response without messages
        return response;
    }
    response.map(|body| {
        Body::new(body.map_frame(move |mut frame| {
            if let Some(trailers) = frame.trailers_mut() {
                trailers.insert(TOKEN_GENERATION, value.clone());
            }
            frame
        }))
    })
}

/// A certificate or a key: PEM text, or the path of a file with it.
#[derive(Clone, Debug)]
pub enum Pem {
    /// PEM text.
    Text(Vec<u8>),
    /// The path of a PEM file, which is read when the client connects.
    File(PathBuf),
}

impl Pem {
    #[cfg(feature = "tls")]
    async fn read(self) -> Result<Vec<u8>> {
        match self {
            Self::Text(text) => Ok(text),
            Self::File(path) => tokio::fs::read(&path)
                .await
                .map_err(|error| Error::invalid("tls", format!("cannot read {}: {error}", path.display()))),
        }
    }
}

impl From<&str> for Pem {
    /// PEM text if the text begins like one, and else a path.
    fn from(text: &str) -> Self {
        if text.trim_start().starts_with("-----BEGIN") { Self::Text(text.into()) } else { Self::File(text.into()) }
    }
}

impl From<String> for Pem {
    fn from(text: String) -> Self {
        text.as_str().into()
    }
}

impl From<PathBuf> for Pem {
    fn from(path: PathBuf) -> Self {
        Self::File(path)
    }
}

impl From<Vec<u8>> for Pem {
    fn from(text: Vec<u8>) -> Self {
        Self::Text(text)
    }
}

/// Settings of a channel.
#[derive(Clone, Debug, Default)]
pub(crate) struct ChannelOptions {
    pub(crate) token: Option<Token>,
    pub(crate) ca: Option<Pem>,
    pub(crate) identity: Option<(Pem, Pem)>,
    pub(crate) server_name: Option<String>,
    pub(crate) insecure: bool,
}

impl ChannelOptions {
    fn tls(&self, target: &Target) -> Result<bool> {
        let asked = self.ca.is_some() || self.identity.is_some();
        if matches!(target, Target::Unix(_)) && asked {
            return Err(Error::invalid("target", "a unix socket has no TLS: leave out the certificates"));
        }
        if self.insecure && asked {
            return Err(Error::invalid("insecure", "certificates need TLS: leave out `insecure`"));
        }
        if self.insecure && self.token.is_some() && !target.is_local() {
            return Err(Error::invalid("insecure", "a token for another machine needs TLS"));
        }
        Ok(asked || !(self.insecure || target.is_local()))
    }
}

/// Opens a channel. Connecting happens at the first call.
pub(crate) async fn open(target: &Target, options: ChannelOptions) -> Result<Channel> {
    let tls = options.tls(target)?;
    let uri = match target {
        Target::Unix(_) => "http://localhost".to_owned(),
        Target::Tcp(address) => format!("{}://{address}", if tls { "https" } else { "http" }),
    };
    let invalid = |error: tonic::transport::Error| Error::invalid("target", format!("{target:?}: {error}"));
    let mut endpoint = Endpoint::from_shared(uri)
        .and_then(|endpoint| endpoint.user_agent(concat!("copilot-grpc-rust/", env!("CARGO_PKG_VERSION"))))
        .map_err(invalid)?
        .connect_timeout(Duration::from_secs(10))
        .tcp_nodelay(true)
        .http2_keep_alive_interval(Duration::from_secs(30))
        .keep_alive_timeout(Duration::from_secs(20));
    let token = options.token.clone();
    let settings = Arc::new((target.clone(), options.clone()));
    if tls {
        endpoint = secure(endpoint, options).await?;
    }
    let transport = match target {
        Target::Tcp(_) => endpoint.connect_lazy(),
        Target::Unix(path) => endpoint.connect_with_connector_lazy(UnixConnector(path.clone())),
    };
    Ok(Channel { transport, token, settings })
}

#[cfg(feature = "tls")]
async fn secure(endpoint: Endpoint, options: ChannelOptions) -> Result<Endpoint> {
    use tonic::transport::{Certificate, ClientTlsConfig, Identity};

    let mut config = ClientTlsConfig::new();
    config = match options.ca {
        Some(ca) => config.ca_certificate(Certificate::from_pem(ca.read().await?)),
        None => config.with_native_roots(),
    };
    if let Some((certificate, key)) = options.identity {
        config = config.identity(Identity::from_pem(certificate.read().await?, key.read().await?));
    }
    if let Some(name) = options.server_name {
        config = config.domain_name(name);
    }
    endpoint.tls_config(config).map_err(|error| Error::invalid("tls", format!("bad certificates: {error:?}")))
}

#[cfg(not(feature = "tls"))]
async fn secure(_: Endpoint, _: ChannelOptions) -> Result<Endpoint> {
    Err(Error::invalid("target", "the target needs TLS: enable the feature `tls`, or set `insecure`"))
}

/// Connects to a unix socket, whatever the URI.
#[derive(Clone)]
struct UnixConnector(PathBuf);

impl Service<Uri> for UnixConnector {
    type Response = TokioIo<UnixStream>;
    type Error = std::io::Error;
    type Future = Pin<Box<dyn Future<Output = std::io::Result<Self::Response>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Uri) -> Self::Future {
        let path = self.0.clone();
        Box::pin(async move { UnixStream::connect(path).await.map(TokioIo::new) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tls_is_used_for_other_machines_and_with_certificates() {
        let plain = ChannelOptions::default;
        let with_ca = || ChannelOptions { ca: Some("ca.pem".into()), ..plain() };
        let insecure = || ChannelOptions { insecure: true, ..plain() };
        let with_token = |options| ChannelOptions { token: Some("t".into()), ..options };
        for (target, options, want) in [
            ("unix:/s", plain(), Some(false)),
            ("unix:/s", with_token(plain()), Some(false)),
            ("unix:/s", with_ca(), None),
            ("localhost:1", plain(), Some(false)),
            ("localhost:1", with_ca(), Some(true)),
            ("agents.example:1", plain(), Some(true)),
            ("agents.example:1", insecure(), Some(false)),
            ("agents.example:1", with_token(insecure()), None),
            ("localhost:1", with_token(insecure()), Some(false)),
            ("localhost:1", ChannelOptions { insecure: true, ..with_ca() }, None),
        ] {
            assert_eq!(options.tls(&Target::parse(target).unwrap()).ok(), want, "{target} {options:?}");
        }
    }
}
