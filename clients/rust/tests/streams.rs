//! Streams of events and turns, and calls, against a scripted server.
#![allow(clippy::unwrap_used)]

mod support;

use std::future::IntoFuture;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use copilot_grpc::bridge::v1 as bridge;
use copilot_grpc::bridge::v1::run_response::Frame as RunFrame;
use copilot_grpc::bridge::v1::subscribe_response::Frame;
use copilot_grpc::cli::v1 as cli;
use copilot_grpc::{
    Attachment, Entry, GapReason, PendingChange, Position, Prompt, Reason, Reconnect, Start, TurnStatus, answers,
};
use support::{Running, connected, position, soon, status};
use tokio::sync::Notify;
use tokio_stream::Stream;
use tonic::{Code, Status};

fn seqs(entries: &[Entry]) -> Vec<u64> {
    entries.iter().map(|entry| entry.position().seq).collect()
}

#[tokio::test]
async fn events_continue_after_broken_streams_without_duplicates() {
    let (running, client) = connected().await;
    let session = client.session("s1");
    let mut events = session.events().types(["assistant.*"]).stream();
    let reading = tokio::spawn(async move {
        let mut entries = Vec::new();
        while let Some(entry) = events.next().await {
            entries.push(entry.unwrap());
        }
        entries
    });
    let first = running.fake.subscription().await;
    let cursor = &first.request.sessions[0];
    assert_eq!((&*cursor.session_id, cursor.after), ("s1", None));
    assert_eq!(cursor.filter.as_ref().unwrap().types, ["assistant.*"]);
    first.events("assistant.message", [1, 2]);
    first.cut(Code::Internal);
    let second = running.fake.subscription().await;
    assert_eq!(second.request.sessions[0].after, Some(position(1, 2)));
    second.events("assistant.message", [2, 3]); // one twice
    // Excluded events move the position as well.
    second.send(bridge::SubscribeResponse {
        session_id: "s1".into(),
        resume_after: Some(position(1, 9)),
        frame: Some(Frame::Heartbeat(Box::default())),
    });
    second.tell(Frame::GoAway(Box::default()));
    let third = running.fake.subscription().await;
    assert_eq!(third.request.sessions[0].after, Some(position(1, 9)));
    let draining = bridge::SubscriptionClosed { reason: bridge::CloseReason::Draining.into(), position: None };
    third.tell(Frame::Closed(Box::new(draining)));
    let last = running.fake.subscription().await;
    last.events("assistant.message", [10]);
    let deleted = bridge::SubscriptionClosed { reason: bridge::CloseReason::Deleted.into(), position: None };
    last.tell(Frame::Closed(Box::new(deleted)));
    assert_eq!(seqs(&soon(reading).await.unwrap()), [1, 2, 3, 10]);
    assert_eq!(session.position(), Some(Position { epoch: 1, seq: 10 }));
}

#[tokio::test]
async fn gaps_are_values() {
    let (running, client) = connected().await;
    let gap = |reason: bridge::GapReason, through| {
        let (after, through) = (Some(position(1, 1)), Some(position(1, through)));
        Frame::Gap(Box::new(bridge::Gap { after, through, reason: reason.into(), ..Default::default() }))
    };
    for ephemeral in [false, true] {
        let settings = client.session("s1").events();
        let mut events = if ephemeral { settings.ephemeral_gaps() } else { settings }.stream();
        let (entry, _stream) = tokio::join!(soon(events.next()), async {
            let stream = running.fake.subscription().await;
            stream.tell(gap(bridge::GapReason::EphemeralLost, 5));
            stream.tell(gap(bridge::GapReason::Trimmed, 8));
            stream
        });
        let Some(Ok(Entry::Gap(gap))) = entry else { panic!("no gap") };
        let want = if ephemeral { (GapReason::EphemeralLost, 5) } else { (GapReason::Trimmed, 8) };
        assert_eq!((gap.reason(), gap.through().seq, gap.after().seq), (want.0, want.1, 1));
    }
}

#[tokio::test]
async fn starts() {
    let (running, client) = connected().await;
    let after = Position { epoch: 1, seq: 7 };
    let end = i32::from(bridge::StreamStart::End);
    for (start, want) in [
        (Start::Opened, (None, 0)),
        (Start::Beginning, (None, 0)),
        (Start::Now, (None, end)),
        (Start::After(after), (Some(position(1, 7)), 0)),
    ] {
        let mut events = client.session("s1").events().start(start).stream();
        let reading = tokio::spawn(async move { events.next().await });
        let stream = running.fake.subscription().await;
        let cursor = &stream.request.sessions[0];
        assert_eq!((cursor.after, cursor.start), want, "{start:?}");
        reading.abort();
        stream.gone().await;
    }
}

#[tokio::test]
async fn final_errors_end_the_events() {
    let (running, client) = connected().await;
    let mut events = client.session("s1").events().stream();
    let reading = tokio::spawn(async move { (events.next().await, events.next().await) });
    running.fake.subscription().await.fail(status(Code::NotFound, "SESSION_NOT_FOUND"));
    let (error, end) = soon(reading).await.unwrap();
    let error = error.unwrap().unwrap_err();
    assert_eq!((error.reason(), &*error.metadata()["session_id"]), (Reason::SessionNotFound, "s1"));
    assert!(end.is_none());
}

#[tokio::test]
async fn closing_ends_the_events() {
    let (running, client) = connected().await;
    let session = client.session("s1");
    let mut events = session.events().stream();
    let reading = tokio::spawn(async move { events.next().await });
    let stream = running.fake.subscription().await;
    session.close().await;
    assert!(soon(reading).await.unwrap().is_none());
    stream.gone().await;
}

struct Woken(Notify);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.notify_one();
    }
}

/// The reader is polled by hand, so that it finds the failure and the closing at once.
#[tokio::test]
async fn closing_hides_the_failure_of_the_stream() {
    let (running, client) = connected().await;
    let session = client.session("s1");
    let mut events = pin!(session.events().stream());
    let (first, stream) = tokio::join!(soon(events.next()), async {
        let stream = running.fake.subscription().await;
        stream.events("assistant.message", [1]);
        stream
    });
    assert!(first.unwrap().is_ok());

    let woken = Arc::new(Woken(Notify::new()));
    let waker = Waker::from(woken.clone());
    let mut context = Context::from_waker(&waker);
    assert!(events.as_mut().poll_next(&mut context).is_pending());
    stream.fail(status(Code::NotFound, "SESSION_NOT_FOUND"));
    soon(woken.0.notified()).await; // the failure has arrived
    session.close().await;
    let end = events.as_mut().poll_next(&mut context);
    assert!(matches!(end, Poll::Ready(None)), "{end:?}");
}

fn run_frame(frame: RunFrame) -> bridge::RunResponse {
    bridge::RunResponse { frame: Some(frame) }
}

fn data_event(seq: u64, data: cli::session_event::Data) -> bridge::RunResponse {
    let mut event = support::event("", seq);
    event.event.as_mut().unwrap().data = Some(data);
    let frame = Some(Frame::Events(Box::new(bridge::EventBatch { events: vec![event] })));
    run_frame(RunFrame::Stream(Box::new(bridge::SubscribeResponse { frame, ..Default::default() })))
}

fn delta(seq: u64, id: &str, text: &str) -> bridge::RunResponse {
    let delta =
        cli::AssistantMessageDeltaData { message_id: id.into(), delta_content: text.into(), ..Default::default() };
    data_event(seq, cli::session_event::Data::AssistantMessageDelta(Box::new(delta)))
}

fn message(seq: u64, id: &str, text: &str) -> bridge::RunResponse {
    let message = cli::AssistantMessageData { message_id: id.into(), content: text.into(), ..Default::default() };
    data_event(seq, cli::session_event::Data::AssistantMessage(Box::new(message)))
}

fn started() -> bridge::RunResponse {
    let started = bridge::RunStarted { message_id: "m1".into(), ..Default::default() };
    run_frame(RunFrame::Started(Box::new(started)))
}

fn outcome(status: bridge::TurnStatus, text: &str) -> bridge::RunResponse {
    let outcome = bridge::TurnOutcome {
        status: status.into(),
        text: text.into(),
        end_position: Some(position(1, 20)),
        ..Default::default()
    };
    run_frame(RunFrame::Outcome(Box::new(outcome)))
}

#[tokio::test]
async fn turn_is_sent_once_and_read_over_broken_streams() {
    let (running, client) = connected().await;
    let session = client.session("s1");
    let mut turn = session.run("Hello").request_id("r1");
    let reading = tokio::spawn(async move {
        let mut pieces = Vec::new();
        let mut deltas = turn.deltas();
        while let Some(piece) = deltas.next().await {
            pieces.push(piece.unwrap());
        }
        (pieces, turn.outcome().await.unwrap())
    });
    let first = running.fake.run().await;
    assert_eq!(first.request.prompt.as_ref().unwrap().text, "Hello");
    first.send(started());
    first.send(delta(5, "a", "One "));
    first.cut(Code::Unavailable);
    let second = running.fake.run().await;
    assert_eq!(second.request.request_id, "r1");
    second.send(started());
    for frame in [delta(5, "a", "One "), delta(6, "a", "two."), message(7, "a", "One two."), message(8, "b", "Three.")]
    {
        second.send(frame);
    }
    second.send(outcome(bridge::TurnStatus::Completed, "Three."));
    let (pieces, outcome) = soon(reading).await.unwrap();
    assert_eq!(pieces, ["One ", "two.", "Three."]);
    assert_eq!((outcome.status, &*outcome.text, &*outcome.message_id), (TurnStatus::Completed, "Three.", "m1"));
    assert_eq!(session.position(), Some(Position { epoch: 1, seq: 20 }));
}

#[tokio::test]
async fn failed_turn_is_an_outcome() {
    let (running, client) = connected().await;
    let waiting = tokio::spawn(client.session("s1").run("Hello").outcome());
    let stream = running.fake.run().await;
    stream.send(outcome(bridge::TurnStatus::Failed, ""));
    let outcome = soon(waiting).await.unwrap().unwrap();
    assert!(!outcome.is_completed());
    let error = outcome.error_for_status().unwrap_err();
    assert_eq!((error.reason(), error.outcome().unwrap().status), (Reason::TurnFailed, TurnStatus::Failed));
}

#[tokio::test]
async fn reconnection_can_be_disabled() {
    let running = Running::start();
    let client = running.connect().reconnect(Reconnect::never()).await.unwrap();
    let mut events = client.session("s1").events().stream();
    let reading = tokio::spawn(async move { events.next().await });
    running.fake.subscription().await.cut(Code::Unavailable);
    assert!(soon(reading).await.unwrap().unwrap().unwrap_err().is_broken());
}

#[tokio::test]
async fn send_is_repeated_with_its_request_id() {
    let (running, client) = connected().await;
    running.fake.failures.lock().unwrap().insert("Send", vec![Status::internal("cut"), Status::unavailable("cut")]);
    let session = client.session("s1");
    let receipt = session.send(Prompt::new("Hello").immediate()).await.unwrap();
    assert_eq!(receipt.message_id, "m1");
    assert_eq!(session.position(), Some(Position { epoch: 1, seq: 7 }));
    let sends = running.fake.sends.lock().unwrap().clone();
    assert_eq!(sends.len(), 3);
    assert!(sends.iter().all(|send| send.request_id == sends[0].request_id && !send.request_id.is_empty()));
    assert_eq!(sends[0].prompt.as_ref().unwrap().mode(), cli::SendMode::Immediate);
}

#[tokio::test]
async fn refusals_are_errors_with_their_details() {
    let (running, client) = connected().await;
    running.fake.failures.lock().unwrap().insert("Send", vec![status(Code::InvalidArgument, "PROMPT_EMPTY")]);
    let error = client.session("s1").send("").await.unwrap_err();
    assert_eq!((error.reason(), error.code()), (Reason::PromptEmpty, Code::InvalidArgument));
    assert_eq!(error.retry_after(), Duration::from_millis(1));
    assert_eq!(error.to_string(), "InvalidArgument PROMPT_EMPTY: refused");
    running.fake.failures.lock().unwrap().insert("Send", vec![status(Code::DataLoss, "NEWER_REASON")]);
    let error = client.session("s1").send("").await.unwrap_err();
    assert_eq!((error.reason(), error.reason_name()), (Reason::Unknown, "NEWER_REASON"));
    assert_eq!(running.fake.sends.lock().unwrap().len(), 2);
}

#[tokio::test]
async fn large_attachments_are_sent_in_pieces() {
    let (running, client) = connected().await;
    let session = client.session("s1");
    let large = vec![7_u8; 3 << 20];
    let prompt = Prompt::new("See.")
        .attach(Attachment::bytes("small", "text/plain"))
        .attach(Attachment::reader(std::io::Cursor::new(large.clone()), "application/octet-stream"));
    assert_eq!(session.send(prompt).await.unwrap().message_id, "m2");
    assert_eq!(*running.fake.whole.lock().unwrap(), large);
    let attachments = running.fake.sends.lock().unwrap()[0].prompt.as_ref().unwrap().attachments.clone();
    let bytes: Vec<_> = attachments
        .into_iter()
        .map(|attachment| match attachment.variant {
            Some(cli::attachment::Variant::Blob(blob)) => blob.data,
            _ => None,
        })
        .collect();
    assert_eq!(bytes, [Some(b"small".to_vec()), None]);
}

#[tokio::test]
async fn unreadable_attachment_sends_no_part_of_the_prompt() {
    struct Broken;
    impl tokio::io::AsyncRead for Broken {
        fn poll_read(
            self: std::pin::Pin<&mut Self>,
            _: &mut std::task::Context<'_>,
            _: &mut tokio::io::ReadBuf<'_>,
        ) -> std::task::Poll<std::io::Result<()>> {
            std::task::Poll::Ready(Err(std::io::Error::other("torn")))
        }
    }
    let (_running, client) = connected().await;
    let prompt = Prompt::new("See.").attach(Attachment::reader(Broken, "text/plain"));
    let error = soon(client.session("s1").send(prompt).into_future()).await.unwrap_err();
    assert!(error.field() == "attachments" && error.message().contains("torn"), "{error}");
}

#[tokio::test]
async fn servers_that_do_not_work() {
    let running = Running::start();
    *running.fake.version.lock().unwrap() = "2.0.0".into();
    let error = running.connect().await.unwrap_err();
    assert_eq!(error.reason(), Reason::ServerIncompatible);
    assert!(error.message().contains("version 2.0.0"), "{error}");
    running.fake.failures.lock().unwrap().insert("GetServerInfo", vec![Status::unimplemented("no such service")]);
    assert_eq!(running.connect().await.unwrap_err().reason(), Reason::ServerIncompatible);
    let error = copilot_grpc::Client::connect("unix:/no/such/socket").await.unwrap_err();
    assert_eq!(error.reason(), Reason::ServerNotFound);
    assert!(error.message().contains("copilot-grpc serve"), "{error}");
    assert_eq!(copilot_grpc::Client::connect("nowhere").await.unwrap_err().field(), "target");
    let missing = copilot_grpc::Client::launch().binary("no-such-binary").await.unwrap_err();
    assert!(missing.message().contains("not on PATH"), "{missing}");
}

#[tokio::test]
async fn pending_callbacks_are_watched_over_broken_streams() {
    use bridge::watch_pending_response::Change;

    let (running, client) = connected().await;
    let mut changes =
        client.watch_pending().handle().kinds([bridge::CallbackKind::Permission]).label("team", "payments").stream();
    let reading = tokio::spawn(async move {
        let Some(Ok(PendingChange::Waiting(pending))) = changes.next().await else { panic!("no callback waits") };
        pending.answer(answers::approve()).await.unwrap();
        let Some(Ok(PendingChange::Ended(end))) = changes.next().await else { panic!("it has not ended") };
        let refused = changes.next().await.unwrap().unwrap_err();
        (pending.id().to_owned(), end, refused, changes.next().await.is_none())
    });
    let change = |change| bridge::WatchPendingResponse { change: Some(change) };
    let requested = || Change::Requested(support::tool_callback("c1", "weather", "{}"));
    let first = running.fake.watch().await;
    let request = first.request.clone();
    let filter = first.request.filter.as_ref().unwrap();
    assert!(first.request.handle && filter.kinds == [bridge::CallbackKind::Permission as i32]);
    assert_eq!(filter.labels["team"], "payments");
    first.send(change(requested()));
    first.cut(Code::Unavailable);
    let second = running.fake.watch().await;
    assert_eq!(second.request, request);
    second.send(change(requested())); // listed again
    second.send(change(Change::CaughtUp(Default::default())));
    let resolved = bridge::CallbackResolved { callback_id: "c1".into(), ..Default::default() };
    let resolved = bridge::PendingResolved { session_id: "s1".into(), resolved: Some(resolved) };
    second.send(change(Change::Resolved(resolved)));
    second.fail(status(Code::PermissionDenied, "FORBIDDEN"));
    let (callback_id, end, refused, over) = soon(reading).await.unwrap();
    assert_eq!((&*callback_id, &*end.proto.callback_id, over), ("c1", "c1", true));
    assert_eq!(end.resolved.unwrap().callback_id, "c1");
    assert_eq!(refused.reason(), Reason::Forbidden);
    let resolves = running.fake.resolves.lock().unwrap();
    assert_eq!((&*resolves[0].session_id, &*resolves[0].callback_id), ("s1", "c1"));
    assert!(!resolves[0].request_id.is_empty());
}
