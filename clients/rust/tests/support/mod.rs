//! A server whose streams a test plays, over a unix socket.
#![allow(dead_code, missing_docs, unreachable_pub, clippy::unwrap_used, clippy::expect_used)]

use std::collections::HashMap;
use std::future::Future;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use copilot_grpc::bridge::v1 as bridge;
use copilot_grpc::bridge::v1::callback_service_server::{CallbackService, CallbackServiceServer};
use copilot_grpc::bridge::v1::event_service_server::{EventService, EventServiceServer};
use copilot_grpc::bridge::v1::runtime_service_server::{RuntimeService, RuntimeServiceServer};
use copilot_grpc::bridge::v1::session_service_server::{SessionService, SessionServiceServer};
use copilot_grpc::bridge::v1::subscribe_response::Frame;
use copilot_grpc::cli::v1 as cli;
use copilot_grpc::{Client, Connect, Reconnect};
use tokio::sync::{mpsc, oneshot};
use tokio_stream::wrappers::UnixListenerStream;
use tonic::codegen::{BoxStream, tokio_stream};
use tonic::{Code, Request, Response, Status, Streaming};

/// Bounds every wait of a test. It is far more than anything takes.
pub const PATIENCE: Duration = Duration::from_secs(120);
pub const QUICKLY: Reconnect =
    Reconnect { first: Duration::from_millis(1), longest: Duration::from_millis(5), give_up_after: PATIENCE };

/// Waits for the other side.
pub async fn soon<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, future).await.expect("nothing happened")
}

pub fn position(epoch: u64, seq: u64) -> bridge::Position {
    bridge::Position { epoch, seq }
}

type Frames<T> = mpsc::UnboundedSender<Result<T, Status>>;
type Inbox<T> = tokio::sync::Mutex<mpsc::UnboundedReceiver<T>>;

/// A stream of responses in the hands of the test. Dropping it ends the stream with OK.
pub struct ServerStream<Req, Res> {
    pub request: Req,
    frames: Frames<Res>,
}

impl<Req, Res> ServerStream<Req, Res> {
    pub fn send(&self, frame: Res) {
        let _ = self.frames.send(Ok(frame));
    }

    /// Ends the stream like a broken connection: with a code without a reason.
    pub fn cut(self, code: Code) {
        let _ = self.frames.send(Err(Status::new(code, "cut")));
    }

    pub fn fail(self, status: Status) {
        let _ = self.frames.send(Err(status));
    }

    pub fn is_gone(&self) -> bool {
        self.frames.is_closed()
    }

    /// Waits until the client has dropped the stream.
    pub async fn gone(&self) {
        soon(self.frames.closed()).await;
    }
}

impl<Req> ServerStream<Req, bridge::SubscribeResponse> {
    pub fn tell(&self, frame: Frame) {
        self.send(bridge::SubscribeResponse { session_id: "s1".into(), frame: Some(frame), resume_after: None });
    }

    /// Sends events of a type at positions 1/seq.
    pub fn events(&self, event_type: &str, seqs: impl IntoIterator<Item = u64>) {
        let events = seqs.into_iter().map(|seq| event(event_type, seq)).collect();
        self.tell(Frame::Events(Box::new(bridge::EventBatch { events })));
    }
}

pub fn event(event_type: &str, seq: u64) -> bridge::Event {
    let event = cli::SessionEvent { event_type: event_type.into(), ..Default::default() };
    bridge::Event { position: Some(position(1, seq)), event: Some(event), ..Default::default() }
}

/// An Attach stream.
pub struct Attached {
    pub stream: ServerStream<bridge::AttachStart, bridge::AttachResponse>,
    received: Streaming<bridge::AttachRequest>,
}

impl Attached {
    pub fn start(&self, participant_id: &str, pending_callbacks: Vec<bridge::Callback>) {
        let session = bridge::Session { session_id: "s1".into(), position: Some(position(1, 3)), ..Default::default() };
        self.stream.send(bridge::AttachResponse {
            frame: Some(bridge::attach_response::Frame::Started(Box::new(bridge::AttachStarted {
                participant_id: participant_id.into(),
                participant_token: "secret".into(),
                session: Some(session),
                ..Default::default()
            }))),
        });
        self.tell(Frame::Started(Box::new(bridge::SubscriptionStarted { pending_callbacks, ..Default::default() })));
    }

    /// Sends a frame about the session.
    pub fn tell(&self, frame: Frame) {
        let frame = bridge::SubscribeResponse { session_id: "s1".into(), frame: Some(frame), resume_after: None };
        let frame = Some(bridge::attach_response::Frame::Stream(Box::new(frame)));
        self.stream.send(bridge::AttachResponse { frame });
    }

    pub fn ask(&self, callback: bridge::Callback) {
        let requested = bridge::CallbackRequested { callback: Some(callback), offered: true };
        self.tell(Frame::CallbackRequested(Box::new(requested)));
    }

    pub fn resolved(&self, callback_id: &str) {
        let resolved = bridge::CallbackResolved { callback_id: callback_id.into(), ..Default::default() };
        self.tell(Frame::CallbackResolved(Box::new(resolved)));
    }

    pub fn go_away(&self) {
        self.tell(Frame::GoAway(Box::default()));
    }

    /// The next frame of the client.
    pub async fn next(&mut self) -> bridge::attach_request::Frame {
        soon(self.received.message()).await.unwrap().expect("the client has half-closed the stream").frame.unwrap()
    }

    /// Waits until the client has ended the stream.
    pub async fn gone(&mut self) {
        self.stream.gone().await;
    }

    /// The next answer, which must be one.
    pub async fn answer(&mut self) -> (String, bridge::answer::Answer) {
        match self.next().await {
            bridge::attach_request::Frame::Answer(answer) => {
                (answer.callback_id, answer.answer.unwrap().answer.unwrap())
            }
            other => panic!("{other:?} is no answer"),
        }
    }

    pub fn done(&self, callback_id: &str) {
        let subject = Some(bridge::attach_done::Subject::CallbackId(callback_id.into()));
        let done = bridge::AttachDone { subject, ..Default::default() };
        let frame = Some(bridge::attach_response::Frame::Done(Box::new(done)));
        self.stream.send(bridge::AttachResponse { frame });
    }

    pub fn failed(&self, callback_id: &str, code: Code, reason: bridge::ErrorReason) {
        let subject = Some(bridge::attach_failed::Subject::CallbackId(callback_id.into()));
        let failure = bridge::Failure {
            code: code.into(),
            reason: reason.into(),
            message: "refused".into(),
            ..Default::default()
        };
        let failed = bridge::AttachFailed { subject, failure: Some(failure), ..Default::default() };
        let frame = Some(bridge::attach_response::Frame::Failed(Box::new(failed)));
        self.stream.send(bridge::AttachResponse { frame });
    }

    /// Lets the participant leave.
    pub async fn goodbye(mut self) -> bridge::AttachLeave {
        let leave = match self.next().await {
            bridge::attach_request::Frame::Leave(leave) => *leave,
            other => panic!("{other:?} is no goodbye"),
        };
        let closed = bridge::SubscriptionClosed { reason: bridge::CloseReason::Left.into(), position: None };
        self.tell(Frame::Closed(Box::new(closed)));
        leave
    }
}

/// An import in the hands of the test. Dropping it cancels the call.
pub struct Import {
    pub header: bridge::ImportSessionHeader,
    pieces: Streaming<bridge::ImportSessionRequest>,
    reply: oneshot::Sender<Result<bridge::ImportSessionResponse, Status>>,
}

impl Import {
    /// The next piece; none at the end.
    pub async fn next(&mut self) -> Result<Option<Vec<u8>>, Status> {
        let piece = soon(self.pieces.message()).await?.and_then(|message| message.piece);
        Ok(piece.map(|piece| match piece {
            bridge::import_session_request::Piece::Chunk(chunk) => chunk,
            other => panic!("{other:?} is no chunk"),
        }))
    }

    /// Waits until the client has cancelled the call.
    pub async fn gone(&mut self) {
        soon(self.reply.closed()).await;
    }

    pub fn reply(self, reply: Result<bridge::ImportSessionResponse, Status>) {
        let _ = self.reply.send(reply);
    }
}

/// The server. Unary calls other than those here fail with UNIMPLEMENTED.
pub struct Fake {
    to_test: Senders,
    attaches: Inbox<Attached>,
    subscriptions: Inbox<ServerStream<bridge::SubscribeRequest, bridge::SubscribeResponse>>,
    runs: Inbox<ServerStream<bridge::RunRequest, bridge::RunResponse>>,
    watches: Inbox<ServerStream<bridge::WatchPendingRequest, bridge::WatchPendingResponse>>,
    exports: Inbox<ServerStream<bridge::ExportSessionRequest, bridge::ExportSessionResponse>>,
    imports: Inbox<Import>,
    /// The requests of Resolve.
    pub resolves: Mutex<Vec<bridge::ResolveRequest>>,
    /// The requests of Leave.
    pub leaves: Mutex<Vec<bridge::LeaveRequest>>,
    /// How many of the next calls to Leave get no answer.
    pub silent_leaves: AtomicUsize,
    /// Failures of the next Attach streams, before any frame.
    pub refusals: Mutex<Vec<Status>>,
    /// Failures of the next unary calls, by method.
    pub failures: Mutex<HashMap<&'static str, Vec<Status>>>,
    /// The requests of unary calls.
    pub sends: Mutex<Vec<bridge::SendRequest>>,
    pub version: Mutex<String>,
    /// The authorization headers of calls to GetServerInfo, Send and Attach.
    pub tokens: Mutex<Vec<String>>,
    /// Parts of callbacks, for ReadCallback.
    pub whole: Mutex<Vec<u8>>,
}

struct Senders {
    attaches: mpsc::UnboundedSender<Attached>,
    subscriptions: mpsc::UnboundedSender<ServerStream<bridge::SubscribeRequest, bridge::SubscribeResponse>>,
    runs: mpsc::UnboundedSender<ServerStream<bridge::RunRequest, bridge::RunResponse>>,
    watches: mpsc::UnboundedSender<ServerStream<bridge::WatchPendingRequest, bridge::WatchPendingResponse>>,
    exports: mpsc::UnboundedSender<ServerStream<bridge::ExportSessionRequest, bridge::ExportSessionResponse>>,
    imports: mpsc::UnboundedSender<Import>,
}

impl Fake {
    fn new() -> Self {
        let (attaches, subscriptions, runs) =
            (mpsc::unbounded_channel(), mpsc::unbounded_channel(), mpsc::unbounded_channel());
        let (watches, exports, imports) =
            (mpsc::unbounded_channel(), mpsc::unbounded_channel(), mpsc::unbounded_channel());
        Self {
            to_test: Senders {
                attaches: attaches.0,
                subscriptions: subscriptions.0,
                runs: runs.0,
                watches: watches.0,
                exports: exports.0,
                imports: imports.0,
            },
            attaches: tokio::sync::Mutex::new(attaches.1),
            subscriptions: tokio::sync::Mutex::new(subscriptions.1),
            runs: tokio::sync::Mutex::new(runs.1),
            watches: tokio::sync::Mutex::new(watches.1),
            exports: tokio::sync::Mutex::new(exports.1),
            imports: tokio::sync::Mutex::new(imports.1),
            resolves: Mutex::default(),
            leaves: Mutex::default(),
            silent_leaves: AtomicUsize::default(),
            refusals: Mutex::default(),
            failures: Mutex::default(),
            sends: Mutex::default(),
            version: Mutex::new("0.1.0".into()),
            tokens: Mutex::default(),
            whole: Mutex::default(),
        }
    }

    /// The next Attach stream.
    pub async fn attach(&self) -> Attached {
        soon(async { self.attaches.lock().await.recv().await }).await.unwrap()
    }

    /// The next Attach stream, started.
    pub async fn attached(&self, participant_id: &str, pending: Vec<bridge::Callback>) -> Attached {
        let attached = self.attach().await;
        attached.start(participant_id, pending);
        attached
    }

    pub async fn subscription(&self) -> ServerStream<bridge::SubscribeRequest, bridge::SubscribeResponse> {
        soon(async { self.subscriptions.lock().await.recv().await }).await.unwrap()
    }

    pub async fn run(&self) -> ServerStream<bridge::RunRequest, bridge::RunResponse> {
        soon(async { self.runs.lock().await.recv().await }).await.unwrap()
    }

    pub async fn watch(&self) -> ServerStream<bridge::WatchPendingRequest, bridge::WatchPendingResponse> {
        soon(async { self.watches.lock().await.recv().await }).await.unwrap()
    }

    pub async fn export(&self) -> ServerStream<bridge::ExportSessionRequest, bridge::ExportSessionResponse> {
        soon(async { self.exports.lock().await.recv().await }).await.unwrap()
    }

    pub async fn import(&self) -> Import {
        soon(async { self.imports.lock().await.recv().await }).await.unwrap()
    }

    fn failure(&self, method: &str) -> Result<(), Status> {
        match self.failures.lock().unwrap().get_mut(method).and_then(Vec::pop) {
            Some(status) => Err(status),
            None => Ok(()),
        }
    }

    fn note_token<T>(&self, request: &Request<T>) {
        let token = request.metadata().get("authorization").map(|value| value.to_str().unwrap().to_owned());
        self.tokens.lock().unwrap().extend(token);
    }
}

fn stream<Req, Res: Send + 'static>(request: Req) -> (ServerStream<Req, Res>, Response<BoxStream<Res>>) {
    let (frames, waiting) = mpsc::unbounded_channel();
    let waiting = tokio_stream::wrappers::UnboundedReceiverStream::new(waiting);
    (ServerStream { request, frames }, Response::new(Box::pin(waiting)))
}

#[derive(Clone)]
struct Service(Arc<Fake>);

#[tonic::async_trait]
impl RuntimeService for Service {
    async fn get_server_info(
        &self,
        request: Request<bridge::GetServerInfoRequest>,
    ) -> Result<Response<bridge::GetServerInfoResponse>, Status> {
        self.0.note_token(&request);
        self.0.failure("GetServerInfo")?;
        let version = self.0.version.lock().unwrap().clone();
        Ok(Response::new(bridge::GetServerInfoResponse { version, ..Default::default() }))
    }
}

#[tonic::async_trait]
impl SessionService for Service {
    async fn send(&self, request: Request<bridge::SendRequest>) -> Result<Response<bridge::SendResponse>, Status> {
        self.0.note_token(&request);
        self.0.sends.lock().unwrap().push(request.into_inner());
        self.0.failure("Send")?;
        let mut response = Response::new(bridge::SendResponse { message_id: "m1".into(), ..Default::default() });
        response.metadata_mut().insert("copilot-position", "1/7".parse().unwrap());
        Ok(response)
    }

    async fn run(
        &self,
        request: Request<bridge::RunRequest>,
    ) -> Result<Response<BoxStream<bridge::RunResponse>>, Status> {
        let (stream, response) = stream(request.into_inner());
        let _ = self.0.to_test.runs.send(stream);
        Ok(response)
    }

    async fn export_session(
        &self,
        request: Request<bridge::ExportSessionRequest>,
    ) -> Result<Response<BoxStream<bridge::ExportSessionResponse>>, Status> {
        let (stream, response) = stream(request.into_inner());
        let _ = self.0.to_test.exports.send(stream);
        Ok(response)
    }

    async fn import_session(
        &self,
        request: Request<Streaming<bridge::ImportSessionRequest>>,
    ) -> Result<Response<bridge::ImportSessionResponse>, Status> {
        let mut pieces = request.into_inner();
        let first = pieces.message().await?.and_then(|first| first.piece);
        let Some(bridge::import_session_request::Piece::Header(header)) = first else {
            return Err(Status::invalid_argument("no header"));
        };
        let (reply, replied) = oneshot::channel();
        let _ = self.0.to_test.imports.send(Import { header, pieces, reply });
        replied.await.unwrap_or_else(|_| Err(Status::cancelled("dropped"))).map(Response::new)
    }

    async fn send_stream(
        &self,
        request: Request<Streaming<bridge::SendStreamRequest>>,
    ) -> Result<Response<bridge::SendStreamResponse>, Status> {
        let mut pieces = request.into_inner();
        let mut whole = Vec::new();
        while let Some(piece) = pieces.message().await? {
            match piece.piece {
                Some(bridge::send_stream_request::Piece::Request(request)) => {
                    self.0.sends.lock().unwrap().push(request);
                }
                Some(bridge::send_stream_request::Piece::Chunk(chunk)) => whole.extend(chunk.data),
                None => {}
            }
        }
        *self.0.whole.lock().unwrap() = whole;
        Ok(Response::new(bridge::SendStreamResponse { message_id: "m2".into(), ..Default::default() }))
    }
}

#[tonic::async_trait]
impl EventService for Service {
    async fn subscribe(
        &self,
        request: Request<bridge::SubscribeRequest>,
    ) -> Result<Response<BoxStream<bridge::SubscribeResponse>>, Status> {
        let (stream, response) = stream(request.into_inner());
        let _ = self.0.to_test.subscriptions.send(stream);
        Ok(response)
    }
}

#[tonic::async_trait]
impl CallbackService for Service {
    async fn attach(
        &self,
        request: Request<Streaming<bridge::AttachRequest>>,
    ) -> Result<Response<BoxStream<bridge::AttachResponse>>, Status> {
        self.0.note_token(&request);
        let mut received = request.into_inner();
        let Some(bridge::attach_request::Frame::Start(start)) = received.message().await?.and_then(|first| first.frame)
        else {
            return Err(Status::failed_precondition("no start"));
        };
        if let Some(refusal) = self.0.refusals.lock().unwrap().pop() {
            return Err(refusal);
        }
        let (stream, response) = stream(*start);
        let _ = self.0.to_test.attaches.send(Attached { stream, received });
        Ok(response)
    }

    async fn watch_pending(
        &self,
        request: Request<bridge::WatchPendingRequest>,
    ) -> Result<Response<BoxStream<bridge::WatchPendingResponse>>, Status> {
        let (stream, response) = stream(request.into_inner());
        let _ = self.0.to_test.watches.send(stream);
        Ok(response)
    }

    async fn resolve(
        &self,
        request: Request<bridge::ResolveRequest>,
    ) -> Result<Response<bridge::ResolveResponse>, Status> {
        self.0.resolves.lock().unwrap().push(request.into_inner());
        self.0.failure("Resolve")?;
        Ok(Response::new(bridge::ResolveResponse::default()))
    }

    async fn leave(&self, request: Request<bridge::LeaveRequest>) -> Result<Response<bridge::LeaveResponse>, Status> {
        self.0.failure("Leave")?;
        self.0.leaves.lock().unwrap().push(request.into_inner());
        let is_silent = |left: usize| left.checked_sub(1);
        if self.0.silent_leaves.fetch_update(Ordering::Relaxed, Ordering::Relaxed, is_silent).is_ok() {
            std::future::pending::<()>().await;
        }
        Ok(Response::new(bridge::LeaveResponse::default()))
    }

    async fn read_callback(
        &self,
        _: Request<bridge::ReadCallbackRequest>,
    ) -> Result<Response<BoxStream<bridge::ReadCallbackResponse>>, Status> {
        self.0.failure("ReadCallback")?;
        let (stream, response) = stream(());
        for chunk in self.0.whole.lock().unwrap().chunks(10) {
            stream.send(bridge::ReadCallbackResponse { chunk: chunk.to_vec(), total_bytes: 0 });
        }
        Ok(response)
    }
}

/// A fake server's services.
pub fn services() -> (Arc<Fake>, tonic::service::Routes) {
    let fake = Arc::new(Fake::new());
    let service = Service(fake.clone());
    let routes = tonic::service::Routes::new(RuntimeServiceServer::new(service.clone()))
        .add_service(SessionServiceServer::new(service.clone()))
        .add_service(EventServiceServer::new(service.clone()))
        .add_service(CallbackServiceServer::new(service));
    (fake, routes)
}

/// A server and the folder of its socket. Dropping it ends the server.
pub struct Running {
    pub fake: Arc<Fake>,
    pub target: String,
    task: tokio::task::JoinHandle<()>,
    _folder: tempfile::TempDir,
}

impl Drop for Running {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Running {
    pub fn start() -> Self {
        let folder = tempfile::Builder::new().prefix("cgrpc-").tempdir().unwrap();
        let path = folder.path().join("s");
        let listener = tokio::net::UnixListener::bind(&path).unwrap();
        let (fake, services) = services();
        let serving = tonic::transport::Server::builder()
            .add_routes(services)
            .serve_with_incoming(UnixListenerStream::new(listener));
        let task = tokio::spawn(async move { serving.await.unwrap() });
        Self { fake, target: format!("unix:{}", path.display()), task, _folder: folder }
    }

    /// A client that waits only briefly for a server that ends with its test.
    pub fn connect(&self) -> Connect {
        Client::connect(&*self.target).reconnect(QUICKLY).close_timeout(Duration::from_millis(300))
    }
}

/// A server and a client of it.
pub async fn connected() -> (Running, Client) {
    let running = Running::start();
    let client = running.connect().await.unwrap();
    (running, client)
}

pub fn tool_callback(callback_id: &str, name: &str, arguments: &str) -> bridge::Callback {
    let data = cli::ExternalToolRequestedData {
        tool_name: name.into(),
        tool_call_id: "t1".into(),
        arguments_json: Some(arguments.into()),
        ..Default::default()
    };
    bridge::Callback {
        callback_id: callback_id.into(),
        session_id: "s1".into(),
        kind: bridge::CallbackKind::ToolCall.into(),
        request: Some(bridge::callback::Request::ToolCall(Box::new(data))),
        ..Default::default()
    }
}

pub fn permission_callback(callback_id: &str) -> bridge::Callback {
    let variant = Some(cli::permission_request::Variant::Read(Default::default()));
    let data = cli::PermissionRequestedData {
        permission_request: Some(cli::PermissionRequest { variant }),
        ..Default::default()
    };
    bridge::Callback {
        callback_id: callback_id.into(),
        session_id: "s1".into(),
        kind: bridge::CallbackKind::Permission.into(),
        request: Some(bridge::callback::Request::Permission(Box::new(data))),
        ..Default::default()
    }
}

/// An error as the server makes it.
pub fn status(code: Code, reason: &str) -> Status {
    use tonic_types::{ErrorDetails, StatusExt};

    let metadata = HashMap::from([("session_id".to_owned(), "s1".to_owned())]);
    let mut details = ErrorDetails::with_error_info(reason, "copilot-grpc", metadata);
    details.set_retry_info(Some(Duration::from_millis(1)));
    Status::with_error_details(code, "refused", details)
}
