//! Model requests that this program answers, instead of the CLI.

use std::collections::HashMap;
use std::fmt;
use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::{Arc, Mutex, OnceLock};

use base64::Engine;
use bytes::Bytes;
use futures_core::Stream;
use futures_util::{FutureExt, StreamExt};
use tokio::sync::mpsc;
use tokio::task::AbortHandle;

use crate::bridge::v1 as bridge;
use crate::bridge::v1::attach_request::Frame;
use crate::bridge::v1::model_response::Part;
use crate::bridge::v1::model_response_chunk::Data;
use crate::cli::v1 as cli;
use crate::error::{HandlerError, Result};
use crate::handlers::{Handlers, panic_text};
use crate::kind::{ModelRequestChunk, ModelRequestStart};
use crate::link::Line;

const PIECE: usize = 32 << 10;

type BoxError = Box<dyn std::error::Error + Send + Sync>;
type Responding = Pin<Box<dyn Future<Output = std::result::Result<ModelReply, BoxError>> + Send>>;
type Transport = dyn Fn(ModelRequest) -> Responding + Send + Sync;

/// An HTTP request to a model.
#[derive(Debug)]
#[non_exhaustive]
pub struct ModelRequest {
    /// Id of the request.
    pub request_id: String,
    /// HTTP method.
    pub method: String,
    /// Absolute URL.
    pub url: String,
    /// Values by name.
    pub headers: HashMap<String, Vec<String>>,
    /// The body.
    pub body: ModelBody,
}

/// The body of a model request, in pieces.
#[derive(Debug)]
pub struct ModelBody(mpsc::UnboundedReceiver<Bytes>);

impl ModelBody {
    /// The next piece; none at the end.
    pub async fn next(&mut self) -> Option<Bytes> {
        self.0.recv().await
    }

    /// The whole body.
    pub async fn collect(mut self) -> Vec<u8> {
        let mut whole = Vec::new();
        while let Some(piece) = self.next().await {
            whole.extend_from_slice(&piece);
        }
        whole
    }
}

/// An HTTP response. A stream of events has the header `content-type: text/event-stream`.
pub struct ModelReply {
    status: u16,
    headers: HashMap<String, Vec<String>>,
    body: Pin<Box<dyn Stream<Item = std::result::Result<Bytes, BoxError>> + Send>>,
}

impl ModelReply {
    /// A response with a status and a body.
    pub fn new(status: u16, body: impl Into<Bytes>) -> Self {
        let body = futures_util::stream::iter([Ok(body.into())]);
        Self { status, headers: HashMap::new(), body: Box::pin(body) }
    }

    /// A response whose body is read while it is sent. An error ends it like a broken connection.
    pub fn streamed<E: Into<BoxError>>(
        status: u16,
        body: impl Stream<Item = std::result::Result<Bytes, E>> + Send + 'static,
    ) -> Self {
        Self { status, headers: HashMap::new(), body: Box::pin(body.map(|piece| piece.map_err(Into::into))) }
    }

    /// Adds a header.
    pub fn header(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.headers.entry(name.into()).or_default().push(value.into());
        self
    }
}

impl fmt::Debug for ModelReply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ModelReply({})", self.status)
    }
}

/// The model requests that a participant answers.
pub(crate) struct Models {
    transport: Box<Transport>,
    line: OnceLock<Arc<Line>>,
    requests: Mutex<HashMap<String, InHand>>,
}

struct InHand {
    /// The server waits for the answer to each piece, so that few wait here. None after the last one.
    pieces: Option<mpsc::UnboundedSender<Bytes>>,
    task: AbortHandle,
}

impl Models {
    pub(crate) fn new<F, Fut, E>(transport: F) -> Arc<Self>
    where
        F: Fn(ModelRequest) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = std::result::Result<ModelReply, E>> + Send + 'static,
        E: Into<BoxError>,
    {
        let transport = Box::new(move |request| -> Responding {
            let reply = transport(request);
            Box::pin(async move { reply.await.map_err(Into::into) })
        });
        Arc::new(Self { transport, line: OnceLock::new(), requests: Mutex::default() })
    }

    /// Sets the streams on which responses are sent.
    pub(crate) fn bind(&self, line: Arc<Line>) {
        let _ = self.line.set(line);
    }

    /// Sets the handlers of the callbacks about model requests.
    pub(crate) fn register(self: &Arc<Self>, handlers: &mut Handlers) {
        let models = self.clone();
        handlers.on::<ModelRequestStart, _, _>(move |start| std::future::ready(models.start(start)));
        let models = self.clone();
        handlers.on::<ModelRequestChunk, _, _>(move |chunk| std::future::ready(models.chunk(chunk)));
    }

    /// Ends a request whose response is no longer needed.
    pub(crate) fn end(&self, request_id: &str) {
        if let Some(request) = crate::lock(&self.requests).remove(request_id) {
            request.task.abort();
        }
    }

    /// Ends all requests.
    pub(crate) fn close(&self) {
        for (_, request) in crate::lock(&self.requests).drain() {
            request.task.abort();
        }
    }

    fn start(
        self: &Arc<Self>,
        start: cli::CallbackLlmInferenceServiceHttpRequestStartRequest,
    ) -> std::result::Result<(), HandlerError> {
        if start.transport() == cli::LlmInferenceHttpRequestStartTransport::Websocket {
            return Err(HandlerError::new("the model transport makes no WebSocket connections"));
        }
        let (pieces, body) = mpsc::unbounded_channel();
        let request = ModelRequest {
            request_id: start.request_id.clone(),
            method: start.method,
            url: start.url,
            headers: start.headers.into_iter().map(|(name, values)| (name, values.items)).collect(),
            body: ModelBody(body),
        };
        let (models, id) = (self.clone(), start.request_id.clone());
        let session_id = start.session_id.unwrap_or_default();
        let mut requests = crate::lock(&self.requests);
        let task = tokio::spawn(async move {
            models.answer(&session_id, &id, request).await;
            crate::lock(&models.requests).remove(&id);
        });
        requests.insert(start.request_id, InHand { pieces: Some(pieces), task: task.abort_handle() });
        Ok(())
    }

    fn chunk(
        &self,
        chunk: cli::CallbackLlmInferenceServiceHttpRequestChunkRequest,
    ) -> std::result::Result<(), HandlerError> {
        if chunk.cancel() {
            self.end(&chunk.request_id);
            return Ok(());
        }
        let piece = match chunk.binary() {
            true => base64::engine::general_purpose::STANDARD.decode(&chunk.data)?.into(),
            false => Bytes::from(chunk.data.clone()),
        };
        let mut requests = crate::lock(&self.requests);
        let Some(request) = requests.get_mut(&chunk.request_id) else { return Ok(()) }; // its response is complete
        if let Some(pieces) = request.pieces.as_ref().filter(|_| !piece.is_empty()) {
            let _ = pieces.send(piece);
        }
        if chunk.end() {
            request.pieces = None;
        }
        Ok(())
    }

    async fn answer(&self, session_id: &str, id: &str, request: ModelRequest) {
        let responding = async {
            let reply = (self.transport)(request).await?;
            self.respond(id, reply).await
        };
        let failure = match AssertUnwindSafe(responding).catch_unwind().await {
            Ok(Ok(())) => return,
            Ok(Err(error)) => error.to_string(),
            Err(panic) => panic_text(&*panic),
        };
        crate::trace::handler_failed(session_id, id, "model transport", &failure);
        let message = "The model transport failed.".to_owned();
        let error = Some(bridge::ModelResponseError { message, ..Default::default() });
        let _ = self.send(id, Part::Chunk(bridge::ModelResponseChunk { error, ..Default::default() })).await;
    }

    async fn respond(&self, id: &str, mut reply: ModelReply) -> std::result::Result<(), BoxError> {
        let headers = reply.headers.into_iter().map(|(name, items)| (name, cli::StringList { items })).collect();
        let head = bridge::ModelResponseHead { status: reply.status.into(), headers, ..Default::default() };
        self.send(id, Part::Head(head)).await?;
        while let Some(piece) = reply.body.next().await {
            for part in piece?.chunks(PIECE) {
                let data = Some(Data::Binary(part.to_vec()));
                self.send(id, Part::Chunk(bridge::ModelResponseChunk { data, ..Default::default() })).await?;
            }
        }
        let last = bridge::ModelResponseChunk { data: Some(Data::Binary(Vec::new())), end: true, error: None };
        Ok(self.send(id, Part::Chunk(last)).await?)
    }

    async fn send(&self, id: &str, part: Part) -> Result<()> {
        if let Some(line) = self.line.get() {
            let response = bridge::ModelResponse { request_id: id.to_owned(), part: Some(part) };
            line.live().await?.send(Frame::ModelResponse(Box::new(response))).await;
        }
        Ok(())
    }
}
