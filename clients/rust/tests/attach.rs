//! Participants and their callbacks, against a scripted server.
#![allow(clippy::unwrap_used)]

mod support;

use std::future::IntoFuture;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use copilot_grpc::bridge::v1 as bridge;
use copilot_grpc::bridge::v1::answer::Answer;
use copilot_grpc::bridge::v1::tool_answer::Outcome;
use copilot_grpc::{
    Client, ConnectionChange, HandlerError, Reason, Session, SessionOptions, Token, Tool, ToolError, permission,
};
use support::{Attached, Running, connected, permission_callback, soon, status, tool_callback};
use tokio::sync::{Notify, Semaphore, mpsc};
use tonic::{Code, Status};

#[derive(serde::Deserialize, schemars::JsonSchema)]
struct City {
    city: String,
}

/// Opens a session with options, on the next Attach stream.
async fn open(
    running: &Running,
    client: &Client,
    options: impl FnOnce(SessionOptions) -> SessionOptions,
) -> (Session, Attached) {
    let (session, attached) =
        tokio::join!(options(client.create_session()).into_future(), running.fake.attached("p1", vec![]));
    (session.unwrap(), attached)
}

/// A tool that counts its runs.
fn counting(runs: &Arc<AtomicUsize>) -> Tool {
    let runs = runs.clone();
    Tool::new("count", "", move |_: copilot_grpc::NoArguments| {
        let run = runs.fetch_add(1, Ordering::Relaxed) + 1;
        async move { format!("run {run}") }
    })
}

fn text(answer: Answer) -> String {
    match answer {
        Answer::Tool(tool) => match tool.outcome {
            Some(Outcome::Text(text)) => text,
            Some(Outcome::Result(result)) => result.text_result_for_llm,
            other => panic!("{other:?} has no text"),
        },
        Answer::Error(error) => error.message,
        other => panic!("{other:?} has no text"),
    }
}

#[tokio::test]
async fn start_declares_tools_and_handlers() {
    let (running, client) = connected().await;
    let (_session, attached) = open(&running, &client, |builder| {
        builder
            .tool(Tool::new("b", "B.", |_: City| async {}).skip_permission())
            .tool(Tool::new("a", "A.", |_: City| async {}))
            .tool(Tool::new("c", "C.", |_: City| async {}).owned_by_session())
            .on_permission(permission::approve_all)
            .on_user_input(|_| async { "yes" })
            .on_pre_tool_use(|_| async {})
            .on_request("new.method", |_| async { Ok::<_, HandlerError>(7) })
            .name("me")
            .model("gpt-5")
            .session_id("mine")
    })
    .await;
    let start = &attached.stream.request;
    assert_eq!(start.tools.iter().map(|tool| &*tool.name).collect::<Vec<_>>(), ["a", "b"]);
    assert_eq!(start.tools[1].skip_permission, Some(true));
    assert!(start.tools[0].parameters_json.as_deref().unwrap().contains(r#""city""#));
    let handlers = start.handlers.as_ref().unwrap();
    let kinds = [bridge::CallbackKind::UserInput, bridge::CallbackKind::Hook].map(i32::from);
    assert!(handlers.permission && handlers.kinds == kinds, "{handlers:?}");
    assert_eq!(
        (&handlers.hook_types[..], &handlers.methods[..]),
        (&["preToolUse".into()][..], &["new.method".into()][..])
    );
    assert!(start.name == "me" && start.participant_token.is_empty());
    let Some(bridge::attach_start::Session::Create(create)) = &start.session else { panic!("no create") };
    let config = create.config.as_ref().unwrap();
    assert!(create.session_id == "mine" && !create.request_id.is_empty() && config.model.as_deref() == Some("gpt-5"));
    assert_eq!(config.tools.iter().map(|tool| &*tool.name).collect::<Vec<_>>(), ["c"]);
}

#[tokio::test]
async fn callbacks_are_answered() {
    let (running, client) = connected().await;
    let tool = Tool::new("weather", "", |args: City| async move {
        match &*args.city {
            "Paris" => Ok("rain".to_owned()),
            "Rome" => Err(ToolError::new("no forecast")),
            "Oslo" => panic!("/secret/panic"),
            _ => Err(std::io::Error::other("/secret/path").into()),
        }
    });
    let (_session, mut attached) = open(&running, &client, |builder| {
        builder.tool(tool).on_permission(|request| async move {
            match request.kind.as_str() {
                "read" => Err(HandlerError::new("I cannot decide.")),
                _ => Ok(true),
            }
        })
    })
    .await;
    for (id, arguments, want) in [
        ("1", r#"{"city":"Paris"}"#, "rain"),
        ("2", r#"{"city":"Rome"}"#, "no forecast"),
        ("3", r#"{"town":"Rome"}"#, "The arguments do not fit: missing field `city`."),
        (
            "4",
            "{",
            "The arguments do not fit: they are not valid JSON: EOF while parsing an object at line 1 column 1.",
        ),
    ] {
        attached.ask(tool_callback(id, "weather", arguments));
        let (answered, answer) = attached.answer().await;
        assert_eq!((&*answered, &*text(answer)), (id, want));
        attached.done(id);
    }
    for (city, recorded) in [("Oslo", "panic: /secret/panic"), ("Bern", "/secret/path")] {
        attached.ask(tool_callback(city, "weather", &format!(r#"{{"city":"{city}"}}"#)));
        // Only the session's record has the text of a panic or of an error of the host.
        let Answer::Tool(answer) = attached.answer().await.1 else { panic!("no tool answer") };
        let Some(Outcome::Result(result)) = answer.outcome else { panic!("no result") };
        let texts = (&*result.text_result_for_llm, result.result_type.as_deref(), result.error.as_deref());
        assert_eq!(texts, ("The tool failed.", Some("failure"), Some(recorded)));
        attached.done(city);
    }
    attached.ask(permission_callback("p"));
    assert_eq!(text(attached.answer().await.1), "I cannot decide.");
    attached.done("p");
    // Neither a tool nor a kind that nothing handles here is answered; a removed tool is left to others.
    attached.ask(tool_callback("e", "removed", "{}"));
    assert!(matches!(attached.answer().await.1, Answer::Abstain(_)));
}

#[tokio::test]
async fn panicking_handler_is_answered_without_details() {
    let (running, client) = connected().await;
    let (_session, mut attached) = open(&running, &client, |builder| {
        builder.on_permission(|_| async {
            if true {
                panic!("/secret");
            }
            true
        })
    })
    .await;
    for id in ["1", "2"] {
        attached.ask(permission_callback(id));
        assert_eq!(text(attached.answer().await.1), "The handler failed.");
        attached.done(id);
    }
}

#[tokio::test]
async fn answers_wait_for_a_server_that_does_not_read() {
    let (running, client) = connected().await;
    let (runs, long) = (Arc::new(AtomicUsize::new(0)), "x".repeat(100_000));
    let counter = runs.clone();
    let tool = Tool::new("long", "", move |_: copilot_grpc::NoArguments| {
        counter.fetch_add(1, Ordering::Relaxed);
        let text = long.clone();
        async move { text }
    });
    let (_session, mut attached) = open(&running, &client, |builder| builder.tool(tool)).await;
    let asked: Vec<_> = (0..300).map(|n| n.to_string()).collect();
    for id in &asked {
        attached.ask(tool_callback(id, "long", "{}"));
    }
    soon(async {
        while runs.load(Ordering::Relaxed) < asked.len() {
            tokio::task::yield_now().await;
        }
    })
    .await;
    let mut answered = Vec::new();
    for _ in &asked {
        let (id, answer) = attached.answer().await;
        assert_eq!(text(answer).len(), 100_000);
        attached.done(&id);
        answered.push(id);
    }
    answered.sort_by_key(|id| id.parse::<u32>().unwrap());
    assert_eq!(answered, asked);
}

#[tokio::test]
async fn answer_is_sent_again_on_the_next_stream_and_the_tool_runs_once() {
    let (running, client) = connected().await;
    let runs = Arc::default();
    let (_session, mut first) = open(&running, &client, |builder| builder.tool(counting(&runs))).await;
    first.ask(tool_callback("c", "count", "{}"));
    assert_eq!(text(first.answer().await.1), "run 1");
    first.stream.cut(Code::Unavailable);
    // The second stream breaks as well before it has acknowledged the answer.
    for code in [Code::Internal, Code::Cancelled] {
        let mut next = running.fake.attached("p1", vec![tool_callback("c", "count", "{}")]).await;
        assert_eq!(next.stream.request.participant_token, "secret");
        assert_eq!(next.stream.request.after, Some(support::position(1, 3)));
        assert_eq!(text(next.answer().await.1), "run 1");
        next.stream.cut(code);
    }
    let mut last = running.fake.attached("p1", vec![tool_callback("c", "count", "{}")]).await;
    assert_eq!(text(last.answer().await.1), "run 1");
    last.done("c");
    last.ask(tool_callback("d", "count", "{}"));
    assert_eq!(text(last.answer().await.1), "run 2");
    assert_eq!(runs.load(Ordering::Relaxed), 2);
}

#[tokio::test]
async fn go_away_reconnects_before_the_old_stream_ends() {
    let (running, client) = connected().await;
    let (session, mut old) = open(&running, &client, |builder| builder).await;
    old.go_away();
    let mut new = running.fake.attach().await;
    assert!(!old.stream.is_gone(), "the old stream must stay until the new one has started");
    new.start("p1", vec![]);
    old.gone().await;
    new.ask(tool_callback("c", "none", "{}"));
    assert!(matches!(new.answer().await.1, Answer::Abstain(_)));
    assert!(session.ended().is_none());
}

#[tokio::test]
async fn expired_participant_joins_again() {
    let (running, client) = connected().await;
    let (changes, mut changed) = mpsc::unbounded_channel();
    let (session, first) =
        open(&running, &client, |builder| builder.on_connection(move |change| changes.send(change).unwrap())).await;
    *running.fake.refusals.lock().unwrap() = vec![status(Code::NotFound, "PARTICIPANT_NOT_FOUND")];
    first.stream.cut(Code::Unavailable);
    let second = running.fake.attached("p2", vec![]).await;
    assert_eq!(second.stream.request.participant_token, "");
    assert!(matches!(soon(changed.recv()).await, Some(ConnectionChange::Disconnected(e)) if e.is_broken()));
    assert!(matches!(soon(changed.recv()).await,
        Some(ConnectionChange::Expired { participant_id }) if participant_id == "p1"));
    assert!(matches!(soon(changed.recv()).await,
        Some(ConnectionChange::Reconnected { participant_id }) if participant_id == "p2"));
    assert_eq!(session.participant_id(), "p2");
}

#[tokio::test]
async fn final_errors_end_the_participation() {
    for (reason, code) in [("SESSION_NOT_FOUND", Code::NotFound), ("UNAUTHENTICATED", Code::Unauthenticated)] {
        let (running, client) = connected().await;
        let (session, attached) = open(&running, &client, |builder| builder).await;
        attached.stream.fail(status(code, reason));
        let error = soon(session.wait_ended()).await;
        assert_eq!(error.reason_name(), reason);
        assert_eq!(session.ended().unwrap().reason(), error.reason());
    }
}

#[tokio::test]
async fn unauthenticated_stream_returns_with_a_changed_token() {
    let running = Running::start();
    let token = Arc::new(Mutex::new("one"));
    let source = token.clone();
    let token_function = move || {
        let token = source.lock().unwrap().to_string();
        async move { Ok::<_, copilot_grpc::Error>(token) }
    };
    let client = running.connect().token(Token::function(token_function)).await.unwrap();
    let (session, attached) = open(&running, &client, |builder| builder).await;
    *token.lock().unwrap() = "two";
    attached.stream.fail(status(Code::Unauthenticated, "UNAUTHENTICATED"));
    let _again = running.fake.attached("p1", vec![]).await;
    let tokens = running.fake.tokens.lock().unwrap().clone();
    assert_eq!(tokens, ["Bearer one", "Bearer one", "Bearer two"]);
    assert!(session.ended().is_none());
}

#[tokio::test]
async fn call_is_repeated_with_the_token_that_replaced_its_own() {
    let running = Running::start();
    let tokens = Arc::new(Mutex::new(vec!["two", "two", "one", "one"]));
    let source = tokens.clone();
    let token = Token::function(move || {
        let mut tokens = source.lock().unwrap();
        let token = if tokens.len() > 1 { tokens.pop().unwrap() } else { tokens[0] }.to_owned();
        async move { Ok::<_, copilot_grpc::Error>(token) }
    });
    let client = running.connect().token(token).await.unwrap();
    let expired = status(Code::Unauthenticated, "UNAUTHENTICATED");
    running.fake.failures.lock().unwrap().insert("Send", vec![expired.clone(), expired.clone(), expired]);
    let session = client.session("s1");
    assert_eq!(session.send("Hello").await.unwrap_err().reason(), Reason::Unauthenticated);
    assert_eq!(*running.fake.tokens.lock().unwrap(), ["Bearer one", "Bearer one", "Bearer two"]);
    tokens.lock().unwrap().push("one");
    session.send("Hello").await.unwrap();
    assert_eq!(running.fake.tokens.lock().unwrap()[3..], ["Bearer one", "Bearer two"]);
}

#[tokio::test]
async fn slow_handler_delays_nothing_and_is_cancelled_when_withdrawn() {
    let (running, client) = connected().await;
    let (started, dropped) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    struct OnDrop(Arc<Notify>);
    impl Drop for OnDrop {
        fn drop(&mut self) {
            self.0.notify_one();
        }
    }
    let (begin, end) = (started.clone(), dropped.clone());
    let slow = Tool::new("slow", "", move |_: copilot_grpc::NoArguments| {
        let (begin, end) = (begin.clone(), OnDrop(end.clone()));
        async move {
            let _end = end;
            begin.notify_one();
            std::future::pending::<()>().await
        }
    });
    let (_session, mut attached) =
        open(&running, &client, |builder| builder.tool(slow).tool(counting(&Arc::default()))).await;
    attached.ask(tool_callback("slow", "slow", "{}"));
    soon(started.notified()).await;
    attached.ask(tool_callback("quick", "count", "{}"));
    assert_eq!(attached.answer().await.0, "quick");
    attached.resolved("slow");
    soon(dropped.notified()).await;
}

#[tokio::test]
async fn tools_run_up_to_their_number_at_once() {
    let (running, client) = connected().await;
    let (gate, running_now, most) =
        (Arc::new(Semaphore::new(0)), Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let (waits, now, peak) = (gate.clone(), running_now.clone(), most.clone());
    let tool = Tool::new("wait", "", move |_: copilot_grpc::NoArguments| {
        let (waits, now, peak) = (waits.clone(), now.clone(), peak.clone());
        async move {
            peak.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
            waits.acquire().await.unwrap().forget();
            now.fetch_sub(1, Ordering::SeqCst);
        }
    });
    let (_session, mut attached) = open(&running, &client, |builder| {
        builder.tool(tool).max_concurrent_tools(2).on_permission(permission::deny_all)
    })
    .await;
    for id in ["1", "2", "3", "4"] {
        attached.ask(tool_callback(id, "wait", "{}"));
    }
    attached.ask(permission_callback("p")); // questions do not wait for tools
    assert_eq!(attached.answer().await.0, "p");
    for _ in 0..4 {
        gate.add_permits(1);
        let (id, _) = attached.answer().await;
        attached.done(&id);
    }
    assert_eq!(most.load(Ordering::SeqCst), 2);
}

#[tokio::test]
async fn refused_answers() {
    let (running, client) = connected().await;
    let (_session, mut attached) = open(&running, &client, |builder| {
        builder.tool(counting(&Arc::default())).on_permission(permission::approve_all)
    })
    .await;
    // Invalid answers become errors, so that the turn continues.
    attached.ask(permission_callback("p"));
    assert!(matches!(attached.answer().await.1, Answer::Permission(_)));
    attached.failed("p", Code::InvalidArgument, bridge::ErrorReason::AnswerInvalid);
    assert_eq!(text(attached.answer().await.1), "refused");
    attached.done("p");
    // While the CLI process is away, the answer is sent again.
    attached.ask(tool_callback("c", "count", "{}"));
    for _ in 0..2 {
        assert_eq!(text(attached.answer().await.1), "run 1");
        attached.failed("c", Code::Unavailable, bridge::ErrorReason::RuntimeLost);
    }
    assert_eq!(text(attached.answer().await.1), "run 1");
    attached.failed("c", Code::FailedPrecondition, bridge::ErrorReason::CallbackResolved);
    attached.ask(tool_callback("d", "count", "{}"));
    assert_eq!(attached.answer().await.0, "d");
}

#[tokio::test]
async fn pending_callbacks_of_others_are_left_alone_and_ended_ones_are_cancelled() {
    let (running, client) = connected().await;
    let (_session, first) = open(&running, &client, |builder| builder.tool(counting(&Arc::default()))).await;
    let mut foreign = tool_callback("foreign", "count", "{}");
    foreign.participant_ids = vec!["p9".into()];
    let mut mine = tool_callback("mine", "count", "{}");
    mine.participant_ids = vec!["p1".into()];
    first.stream.cut(Code::Unavailable);
    let mut next = running.fake.attached("p1", vec![foreign, mine]).await;
    assert_eq!(next.answer().await.0, "mine");
    // The stream breaks, and on the next one the callback is over: the answer is not sent again.
    next.stream.cut(Code::Unavailable);
    let mut last = running.fake.attached("p1", vec![]).await;
    last.ask(tool_callback("new", "count", "{}"));
    let mut ids = vec![last.answer().await.0];
    if ids[0] == "mine" {
        // The answer may leave before the list arrives; the server then refuses it once.
        last.failed("mine", Code::FailedPrecondition, bridge::ErrorReason::CallbackResolved);
        ids.push(last.answer().await.0);
    }
    assert_eq!(ids.pop().unwrap(), "new");
}

#[tokio::test]
async fn large_callbacks_are_read_in_pieces() {
    use prost::Message;

    let (running, client) = connected().await;
    let (_session, mut attached) = open(&running, &client, |builder| builder.tool(counting(&Arc::default()))).await;
    *running.fake.whole.lock().unwrap() = tool_callback("c", "count", "{}").encode_to_vec();
    let mut cut = tool_callback("c", "count", "{}");
    (cut.request, cut.total_bytes) = (None, 2 << 20);
    attached.ask(cut.clone());
    assert_eq!(text(attached.answer().await.1), "run 1");
    attached.done("c");
    cut.callback_id = "d".into();
    running.fake.failures.lock().unwrap().insert("ReadCallback", vec![Status::not_found("no")]);
    attached.ask(cut);
    assert_eq!(text(attached.answer().await.1), "the request could not be read");
}

#[tokio::test]
async fn leaving() {
    let running = Running::start();
    let client = running.connect().close_timeout(Duration::from_secs(10)).await.unwrap();
    // Closing says goodbye and waits for the server; closing again does nothing.
    let (session, attached) = open(&running, &client, |builder| builder).await;
    let (leave, ()) = tokio::join!(attached.goodbye(), session.close());
    assert!(!leave.disconnect);
    session.close().await;
    assert_eq!(session.ended().unwrap().reason(), Reason::SessionClosed);
    // Disconnecting says so.
    let (session, attached) = open(&running, &client, |builder| builder).await;
    let (leave, disconnected) = tokio::join!(attached.goodbye(), session.disconnect());
    assert!(leave.disconnect && disconnected.is_ok());
    // Dropping the last clone leaves in the background.
    let (session, attached) = open(&running, &client, |builder| builder).await;
    let clone = session.clone();
    drop(session);
    drop(clone);
    assert!(!attached.goodbye().await.disconnect);
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Broken {
    /// The server refuses each new stream.
    Refused,
    /// The server does not reply on the new stream.
    Silent,
    /// The server does not reply to the goodbye on the stream.
    DuringGoodbye,
}

#[tokio::test]
async fn broken_stream_is_left_by_a_call() {
    for (broken, drops) in [
        (Broken::Refused, false),
        (Broken::Refused, true),
        (Broken::Silent, false),
        (Broken::Silent, true),
        (Broken::DuringGoodbye, false),
        (Broken::DuringGoodbye, true),
    ] {
        let running = Running::start();
        let client = running.connect().close_timeout(Duration::from_secs(10)).await.unwrap();
        let (broke, mut breaks) = mpsc::unbounded_channel();
        let (session, attached) = open(&running, &client, |builder| {
            builder.on_connection(move |change| {
                if matches!(change, ConnectionChange::Disconnected(_)) {
                    let _ = broke.send(());
                }
            })
        })
        .await;
        // The first attempt to leave fails as well.
        running.fake.failures.lock().unwrap().insert("Leave", vec![Status::unavailable("cut")]);
        if broken == Broken::Refused {
            *running.fake.refusals.lock().unwrap() = vec![Status::unavailable("cut"); 100_000];
        }
        let (silent, breaking) = if broken == Broken::DuringGoodbye {
            (
                None,
                Some(tokio::spawn(async move {
                    let mut attached = attached;
                    let frame = attached.next().await;
                    assert!(matches!(frame, bridge::attach_request::Frame::Leave(_)), "{frame:?}");
                    attached.stream.cut(Code::Unavailable);
                })),
            )
        } else {
            attached.stream.cut(Code::Unavailable);
            soon(breaks.recv()).await.unwrap();
            (if broken == Broken::Silent { Some(running.fake.attach().await) } else { None }, None)
        };
        let id = session.id().to_owned();
        if drops {
            drop(session);
        } else {
            soon(session.close()).await;
        }
        let left = async {
            while running.fake.leaves.lock().unwrap().is_empty() {
                tokio::task::yield_now().await;
            }
        };
        soon(left).await;
        let leaves = running.fake.leaves.lock().unwrap().clone();
        assert_eq!(leaves.len(), 1, "{broken:?}");
        assert_eq!((&leaves[0].session_id, &*leaves[0].participant_token), (&id, "secret"), "{broken:?}");
        if let Some(breaking) = breaking {
            breaking.await.unwrap();
        }
        drop(silent);
    }
}

#[tokio::test]
async fn closing_gives_up_when_the_server_is_down() {
    let running = Running::start();
    let client = running.connect().close_timeout(Duration::from_millis(50)).await.unwrap();
    let (session, attached) = open(&running, &client, |builder| builder).await;
    attached.stream.cut(Code::Unavailable);
    drop(running);
    soon(session.close()).await;
    assert_eq!(session.ended().unwrap().reason(), Reason::SessionClosed);
}

/// A program: its runtime, on the main thread alone or with so many others.
fn program(threads: usize) -> tokio::runtime::Runtime {
    let mut program = match threads {
        0 => tokio::runtime::Builder::new_current_thread(),
        _ => tokio::runtime::Builder::new_multi_thread(),
    };
    program.worker_threads(threads.max(1)).enable_all().build().unwrap()
}

/// Opens a session whose stream breaks and cannot be opened again. The receiver ends with the participant.
async fn open_and_cut(running: &Running) -> (Session, mpsc::UnboundedReceiver<ConnectionChange>) {
    let client = running.connect().close_timeout(Duration::from_secs(10)).await.unwrap();
    let (changes, mut changed) = mpsc::unbounded_channel();
    let listener = move |change| drop(changes.send(change));
    let (session, attached) = open(running, &client, |builder| builder.on_connection(listener)).await;
    *running.fake.refusals.lock().unwrap() = vec![Status::unavailable("cut"); 100_000];
    attached.stream.cut(Code::Unavailable);
    assert!(matches!(soon(changed.recv()).await, Some(ConnectionChange::Disconnected(_))));
    (session, changed)
}

/// The end of a program in whose hands a session is, whose stream is live or broken.
#[test]
fn runtime_that_shuts_down_leaves() {
    let server = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    for (is_broken, is_dropped, threads) in
        [(false, true, 0), (false, false, 0), (true, true, 0), (true, false, 0), (true, true, 2), (false, false, 2)]
    {
        let running = server.block_on(async { Running::start() });
        let program = program(threads);
        let attached = program.block_on(async {
            let (session, attached) = if is_broken {
                (open_and_cut(&running).await.0, None)
            } else {
                let client = running.connect().close_timeout(Duration::from_secs(10)).await.unwrap();
                let (session, attached) = open(&running, &client, |builder| builder).await;
                (session, Some(attached))
            };
            if !is_dropped {
                tokio::spawn(async move { session.wait_ended().await });
            }
            attached
        });
        drop(program);
        let leaves = running.fake.leaves.lock().unwrap().clone();
        // On further threads the call that the drop began may be under way when the runtime ends.
        let most = if is_broken && is_dropped && threads > 0 { 2 } else { 1 };
        assert!(
            (1..=most).contains(&leaves.len()) && leaves.iter().all(|leave| leave.participant_token == "secret"),
            "broken {is_broken}, dropped {is_dropped}, {threads} threads: {leaves:?}"
        );
        drop(attached);
    }
}

/// A call to leave that the end of the runtime cuts off is made again, because the program cannot know whether the server
/// has received it. To the server the second one means nothing: leaving can be repeated. One that was answered is not.
#[test]
fn runtime_that_shuts_down_repeats_only_a_leave_without_an_answer() {
    let server = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    for (is_answered, threads) in [(false, 0), (false, 2), (true, 0), (true, 2)] {
        let running = server.block_on(async { Running::start() });
        running.fake.silent_leaves.store(usize::from(!is_answered), Ordering::Relaxed);
        let program = program(threads);
        program.block_on(async {
            let (session, mut changed) = open_and_cut(&running).await;
            drop(session);
            if is_answered {
                soon(async { while changed.recv().await.is_some() {} }).await;
            } else {
                soon(async {
                    while running.fake.leaves.lock().unwrap().is_empty() {
                        tokio::time::sleep(Duration::from_millis(1)).await;
                    }
                })
                .await;
            }
        });
        drop(program);
        let leaves = running.fake.leaves.lock().unwrap().clone();
        let leave = bridge::LeaveRequest { session_id: "s1".into(), participant_token: "secret".into() };
        let want = if is_answered { vec![leave] } else { vec![leave; 2] };
        assert_eq!(leaves, want, "answered {is_answered}, {threads} threads");
    }
}

#[tokio::test]
async fn session_is_opened_or_created() {
    use bridge::attach_start::Session;

    let (running, client) = connected().await;
    let configured = |builder: SessionOptions| builder.model("gpt-5").label("team", "payments");
    let serving = async {
        let mut request_ids = Vec::new();
        for (creates, refusal) in [
            (false, Some(status(Code::NotFound, "SESSION_NOT_FOUND"))),
            (true, Some(status(Code::AlreadyExists, "SESSION_EXISTS"))),
            (false, None),
        ] {
            let attached = running.fake.attach().await;
            let (request_id, id, model) = match attached.stream.request.session.clone() {
                Some(Session::Create(create)) if creates => {
                    assert_eq!(create.labels["team"], "payments");
                    (create.request_id, create.session_id, create.config.unwrap().model)
                }
                Some(Session::Resume(resume)) if !creates => {
                    (resume.request_id, resume.session_id, resume.config.unwrap().model)
                }
                other => panic!("{other:?}"),
            };
            assert_eq!((&*id, model.as_deref()), ("mine", Some("gpt-5")));
            assert!(!request_ids.contains(&request_id));
            request_ids.push(request_id);
            match refusal {
                Some(refusal) => attached.stream.fail(refusal),
                None => {
                    attached.start("p1", vec![]);
                    return attached;
                }
            }
        }
        unreachable!()
    };
    let (session, _attached) = tokio::join!(configured(client.open_session("mine")).into_future(), serving);
    assert_eq!(session.unwrap().id(), "s1");
}

#[tokio::test]
async fn opening_a_session_fails_with_other_errors() {
    let (running, client) = connected().await;
    let refused = async {
        running.fake.attach().await.stream.fail(status(Code::PermissionDenied, "FORBIDDEN"));
    };
    let (session, ()) = tokio::join!(client.open_session("mine").into_future(), refused);
    assert_eq!(session.unwrap_err().reason(), Reason::Forbidden);
    let never = async {
        for _ in 0..5 {
            running.fake.attach().await.stream.fail(status(Code::NotFound, "SESSION_NOT_FOUND"));
            running.fake.attach().await.stream.fail(status(Code::AlreadyExists, "SESSION_EXISTS"));
        }
    };
    let (session, ()) = tokio::join!(client.open_session("mine").into_future(), never);
    assert_eq!(session.unwrap_err().reason(), Reason::SessionExists);
}

#[tokio::test]
async fn failed_handlers_are_seen_without_a_subscriber() {
    let output = tokio::process::Command::new(std::env::current_exe().unwrap())
        .args(["handlers_fail_in_a_process", "--exact", "--ignored", "--nocapture"])
        .output()
        .await
        .unwrap();
    let output = String::from_utf8_lossy(&output.stderr).into_owned();
    for line in [
        "warning: copilot-grpc: tool weather failed: /secret/path (session \"s1\", callback \"1\")\n",
        "warning: copilot-grpc: handler of permission failed: no disk (session \"s1\", callback \"2\")\n",
    ] {
        assert!(output.contains(line), "{output}");
    }
}

#[tokio::test]
#[ignore = "started by failed_handlers_are_seen_without_a_subscriber"]
async fn handlers_fail_in_a_process() {
    let (running, client) = connected().await;
    let (_session, mut attached) = open(&running, &client, |builder| {
        let fails = |_: City| async { Err::<(), _>(ToolError::internal("/secret/path")) };
        builder
            .tool(Tool::new("weather", "", fails))
            .on_permission(|_| async { Err::<bool, _>(std::io::Error::other("no disk")) })
    })
    .await;
    attached.ask(tool_callback("1", "weather", r#"{"city":"Bern"}"#));
    attached.answer().await;
    attached.ask(permission_callback("2"));
    attached.answer().await;
}

#[tokio::test]
async fn dropped_opening_cancels_the_stream() {
    let (running, client) = connected().await;
    let opening = tokio::spawn(client.create_session().into_future());
    let mut attached = running.fake.attach().await;
    opening.abort();
    attached.gone().await;
}

#[tokio::test]
async fn opening_is_repeated_with_its_request_id() {
    let (running, client) = connected().await;
    *running.fake.refusals.lock().unwrap() = vec![Status::unavailable("cut")];
    let (session, attached) = open(&running, &client, |builder| builder.request_id("r1")).await;
    let Some(bridge::attach_start::Session::Create(create)) = &attached.stream.request.session else {
        panic!("no create");
    };
    assert!(create.request_id == "r1" && session.id() == "s1");
}

#[tokio::test]
async fn callbacks_are_answered_while_the_session_opens() {
    let (running, client) = connected().await;
    let builder = client.create_session().on_github_token(|_| async { None });
    let opening = tokio::spawn(builder.into_future());
    let mut attached = running.fake.attach().await;
    attached.stream.send(bridge::AttachResponse {
        frame: Some(bridge::attach_response::Frame::Opening(Box::new(bridge::AttachOpening {
            participant_id: "p1".into(),
            participant_token: "secret".into(),
            session_id: "s1".into(),
        }))),
    });
    attached.ask(bridge::Callback {
        callback_id: "t".into(),
        kind: bridge::CallbackKind::GithubToken.into(),
        request: Some(bridge::callback::Request::GithubToken(Box::default())),
        ..Default::default()
    });
    assert!(matches!(attached.answer().await.1, Answer::GithubToken(_)));
    attached.start("p1", vec![]);
    assert_eq!(soon(opening).await.unwrap().unwrap().id(), "s1");
}

#[tokio::test]
async fn tools_are_replaced_here_and_on_the_server() {
    let (running, client) = connected().await;
    let (session, mut attached) = open(&running, &client, |builder| builder.tool(counting(&Arc::default()))).await;
    let tool = |name: &str| Tool::new(name, "", |_: copilot_grpc::NoArguments| async { "new" });
    let setting = tokio::spawn({
        let (session, tools) = (session.clone(), [tool("other")]);
        async move { session.set_tools(tools).await }
    });
    let bridge::attach_request::Frame::Command(command) = attached.next().await else { panic!("no command") };
    let Some(bridge::attach_command::Command::SetTools(set)) = command.command else { panic!("no tools") };
    assert_eq!(set.tools[0].name, "other");
    let subject = Some(bridge::attach_done::Subject::CommandId(command.command_id));
    let done = bridge::AttachDone { subject, ..Default::default() };
    let frame = Some(bridge::attach_response::Frame::Done(Box::new(done)));
    attached.stream.send(bridge::AttachResponse { frame });
    soon(setting).await.unwrap().unwrap();
    attached.ask(tool_callback("c", "other", "{}"));
    assert_eq!(text(attached.answer().await.1), "new");
    let error = session.set_tools([tool("same"), tool("same")]).await.unwrap_err();
    assert_eq!(error.reason(), Reason::ToolNameConflict);
}

#[tokio::test]
async fn methods_that_are_newer_than_the_library() {
    let (running, client) = connected().await;
    let (_session, mut attached) = open(&running, &client, |builder| {
        builder.on_request("new.method", |request| async move { Ok::<_, HandlerError>(request.params["n"].clone()) })
    })
    .await;
    let raw = bridge::RawCallback { method: "new.method".into(), params_json: r#"{"n":[1]}"#.into() };
    attached.ask(bridge::Callback {
        callback_id: "r".into(),
        kind: bridge::CallbackKind::Raw.into(),
        request: Some(bridge::callback::Request::Raw(Box::new(raw))),
        ..Default::default()
    });
    assert!(matches!(attached.answer().await.1, Answer::Raw(answer) if answer.result_json == "[1]"));
}
