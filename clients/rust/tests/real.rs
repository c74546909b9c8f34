//! Sessions of the real CLI with a scripted model. They need `copilot-grpc` on PATH and COPILOT_CLI_PATH.
#![allow(clippy::unwrap_used)]

use std::future::IntoFuture;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use copilot_grpc::bridge::v1 as bridge;
use copilot_grpc::cli::v1 as cli;
use copilot_grpc::cli::v1::attachment::Variant;
use copilot_grpc::cli::v1::session_event::Data;
use copilot_grpc::permission::{Rules, approve_all};
use copilot_grpc::testing::{Rule, Script, Server, call, reply, say, text, tool_call, wait_for};
use copilot_grpc::{Attachment, Client, Json, Prompt, Reason, Reconnect, Start, Tool, ToolError, TurnStatus, answers};
use serde_json::json;

#[derive(serde::Deserialize, schemars::JsonSchema)]
struct City {
    city: String,
}

fn script() -> Vec<Rule> {
    let mut rules = Vec::new();
    rules.extend(call("weather", "get_weather", json!({"city": "Paris"}), "The tool says: {{tool_result}}"));
    rules.push(reply([tool_call("get_weather", json!({"place": "Paris"}))]).when_user("bad arguments"));
    rules.push(reply([text("First. "), wait_for("gate"), text("Second.")]).when_user("slowly"));
    let question = json!({"question": "Which city?", "choices": ["Paris", "Rome"]});
    rules.push(reply([tool_call("ask_user", question)]).when_user("ask me"));
    rules.push(say("You chose: {{tool_result}}").when_tool_result("ask_user"));
    let command = json!({"command": "echo hi", "description": "greets"});
    rules.push(reply([tool_call("bash", command)]).when_user("shell"));
    rules.push(say("Shell: {{tool_result}}").when_tool_result("bash"));
    rules
}

async fn started() -> (Server, Client) {
    let server = Server::start(script()).await.unwrap();
    let client = Client::connect(server.target()).await.unwrap();
    (server, client)
}

fn weather() -> Tool {
    Tool::new(
        "get_weather",
        "Tells the weather in a city.",
        |args: City| async move { format!("rain in {}", args.city) },
    )
}

#[tokio::test]
async fn tools_and_permissions() {
    let (_server, client) = started().await;
    let kinds = Arc::new(Mutex::new(Vec::new()));
    let seen = kinds.clone();
    let session = client
        .create_session()
        .tool(weather())
        .on_permission(move |request| {
            seen.lock().unwrap().push(request.kind.clone());
            async move { request.approve_for_session() }
        })
        .await
        .unwrap();
    for _ in 0..2 {
        let outcome = session.send_and_wait("What is the weather?").await.unwrap();
        assert_eq!((outcome.status, &*outcome.text), (TurnStatus::Completed, "The tool says: rain in Paris"));
        assert!(session.position() >= outcome.end_position && outcome.end_position.is_some());
    }
    assert_eq!(*kinds.lock().unwrap(), ["custom-tool"]); // asked once for the session
    let outcome = session.send_and_wait("bad arguments").await.unwrap();
    assert!(outcome.text.contains("missing field `city`"), "{}", outcome.text);
    let filter = bridge::EventFilter { types: vec!["external_tool.*".into()], ..Default::default() };
    let history = session.history(None, filter).collect().await.unwrap();
    let types: Vec<_> = history.iter().map(|entry| entry.event_type()).take(2).collect();
    assert_eq!(types, ["external_tool.requested", "external_tool.completed"]);
    session.delete().await.unwrap();
    assert_eq!(client.get_session(session.id()).await.unwrap_err().reason(), Reason::SessionNotFound);
}

#[tokio::test]
async fn results_as_the_model_reads_them() {
    let (_server, client) = started().await;
    let tool = |kind: usize| {
        Tool::new("get_weather", "Tells the weather.", move |_: City| async move {
            match kind {
                0 => Err(ToolError::new("closed")),
                1 => Err(std::io::Error::other("/secret/path").into()),
                2 => panic!("/secret/panic"),
                _ => Ok(Json(json!({"sky": "grey"}))),
            }
        })
    };
    let session = client.create_session().tool(tool(0)).on_permission(approve_all).await.unwrap();
    for (kind, want) in ["closed", "", "", r#"{"sky":"grey"}"#].into_iter().enumerate() {
        session.set_tools([tool(kind)]).await.unwrap();
        let answer = session.send_and_wait("weather").await.unwrap().text;
        assert!(answer.contains(want) && !answer.contains("/secret"), "{kind}: {answer}");
    }
    session.delete().await.unwrap();
}

#[tokio::test]
async fn deltas_arrive_before_the_end() {
    let (server, client) = started().await;
    let session = client.create_session().streaming(true).await.unwrap();
    let (mut turn, mut seen) = (session.run("slowly"), String::new());
    let mut deltas = turn.deltas();
    while let Some(piece) = deltas.next().await {
        seen += &piece.unwrap();
        if seen == "First. " {
            server.release("gate").await.unwrap();
        }
    }
    assert_eq!(seen, "First. Second.");
    assert_eq!(turn.outcome().await.unwrap().text, "First. Second.");
}

#[tokio::test]
async fn dropped_wait_leaves_the_turn_or_aborts_it() {
    let (_server, client) = started().await;
    let session = client.create_session().await.unwrap();
    for abort in [false, true] {
        let mut starts = session.events().start(Start::Now).types(["assistant.turn_start"]).stream();
        let after = session.position();
        let waiting = session.send_and_wait("slowly");
        let waiting = if abort { waiting.abort_on_drop() } else { waiting };
        let waiting = tokio::spawn(waiting.into_future());
        while let Some(entry) = starts.next().await {
            if Some(entry.unwrap().position()) > after {
                break;
            }
        }
        waiting.abort();
        assert!(waiting.await.unwrap_err().is_cancelled());
        while abort && session.get().await.unwrap().proto.turn_running {
            tokio::time::sleep(Duration::from_millis(10)).await; // the CLI ends the turn a little later
        }
        assert_eq!(session.get().await.unwrap().proto.turn_running, !abort);
        session.abort().await.unwrap();
    }
}

#[tokio::test]
async fn rules_questions_and_hooks() {
    let (_server, client) = started().await;
    let rules = Rules::new().approve(["read"]).reject(["shell"], "No shell here.");
    let session = client
        .create_session()
        .permissions(rules)
        .on_user_input(|question| async move { question.choices[1].clone() })
        .await
        .unwrap();
    assert!(session.send_and_wait("shell").await.unwrap().text.contains("No shell here."));
    assert!(session.send_and_wait("ask me").await.unwrap().text.contains("Rome"));
    let hooked = client
        .create_session()
        .on_permission(approve_all)
        .on_pre_tool_use(|hook| async move {
            cli::HookPreToolUseOutput {
                permission_decision: cli::HookPermissionDecision::Deny.into(),
                permission_decision_reason: Some(format!("no {}", hook.tool_name)),
                ..Default::default()
            }
        })
        .await
        .unwrap();
    assert!(hooked.send_and_wait("shell").await.unwrap().text.contains("no bash"));
}

#[tokio::test]
async fn attachments() {
    let (_server, client) = started().await;
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), "remember the milk").unwrap();
    let session = client.create_session().await.unwrap();
    let prompt = Prompt::new("compare these")
        .attach(Attachment::path(file.path()))
        .attach(Attachment::bytes(vec![b'x'; 2 << 20], "application/octet-stream").name("big"))
        .attach(Attachment::reader(std::io::Cursor::new("a,b\n"), "text/csv").name("table.csv"));
    assert!(!session.send(prompt).await.unwrap().message_id.is_empty());
    let mut messages = session.events().types(["user.message"]).stream();
    let entry = messages.next().await.unwrap().unwrap();
    let Some(Data::UserMessage(message)) = entry.data() else { panic!("{entry:?}") };
    let kinds: Vec<_> = message.attachments.iter().map(|attachment| attachment.variant.as_ref()).collect();
    assert!(matches!(kinds[..], [Some(Variant::File(_)), Some(Variant::Blob(_)), Some(Variant::Blob(_))]), "{kinds:?}");
}

#[tokio::test]
async fn two_participants_and_a_resumed_session() {
    let (_server, client) = started().await;
    let first = client.create_session().session_id("shared-1").await.unwrap();
    let error = client.create_session().session_id("shared-1").await.unwrap_err();
    assert_eq!(error.reason(), Reason::SessionExists);
    let second = client.join_session("shared-1").tool(weather()).on_permission(approve_all).await.unwrap();
    assert_eq!(first.send_and_wait("weather").await.unwrap().text, "The tool says: rain in Paris");
    second.close().await;
    let participants = first.get().await.unwrap().proto.participants;
    assert_eq!(participants.iter().map(|p| &*p.participant_id).collect::<Vec<_>>(), [first.participant_id()]);
    first.disconnect().await.unwrap();
    let again = client.resume_session("shared-1").tool(weather()).await.unwrap();
    let filter = bridge::EventFilter { types: vec!["session.*".into()], ..Default::default() };
    let history = again.history(None, filter).collect().await.unwrap();
    assert!(history.iter().any(|entry| entry.event_type() == "session.start"));
    let sessions = client.list_sessions(Default::default()).collect().await.unwrap();
    assert!(sessions.iter().any(|session| session.id == "shared-1"));
    again.close().await;
    client.delete_session("shared-1").await.unwrap();
}

#[tokio::test]
async fn answers_by_id() {
    let (_server, client) = started().await;
    let handlers = bridge::Handlers { permission: true, ..Default::default() };
    let session = client.create_session().session_handlers(handlers).tool(weather()).await.unwrap();
    let waiting = tokio::spawn(session.send_and_wait("weather").into_future());
    let mut requests = session.events().types(["permission.requested"]).stream();
    let entry = requests.next().await.unwrap().unwrap();
    let Some(Data::PermissionRequested(request)) = entry.data() else { panic!("{entry:?}") };
    session.resolve(&*request.request_id, answers::approve()).await.unwrap();
    assert_eq!(waiting.await.unwrap().unwrap().text, "The tool says: rain in Paris");
}

#[tokio::test]
async fn failed_turn_is_an_outcome() {
    let server = Server::start(Script::Whole(json!({"rules": []}))).await.unwrap();
    let client = Client::connect(server.target()).await.unwrap();
    let outcome = client.run("anything").await.unwrap();
    assert!(outcome.status == TurnStatus::Failed && outcome.error.is_some());
    assert_eq!(outcome.error_for_status().unwrap_err().reason(), Reason::TurnFailed);
}

#[tokio::test]
async fn restarted_server_loses_nothing() {
    let server = Server::start(script()).await.unwrap();
    let (first, longest) = (Duration::from_millis(50), Duration::from_millis(500));
    let policy = Reconnect { first, longest, ..Reconnect::default() };
    let client = Client::connect(server.target()).reconnect(policy).await.unwrap();
    let runs = Arc::new(AtomicUsize::new(0));
    let counter = runs.clone();
    let count = Tool::new("get_weather", "Tells the weather.", move |_: City| {
        let run = counter.fetch_add(1, Ordering::SeqCst) + 1;
        async move { format!("run {run}") }
    });
    let session = client.create_session().tool(count).on_permission(approve_all).await.unwrap();
    assert_eq!(session.send_and_wait("weather").await.unwrap().text, "The tool says: run 1");
    let mut messages = session.events().start(Start::Beginning).types(["assistant.message"]).stream();
    let watching = tokio::spawn(async move {
        let mut positions = Vec::new();
        while positions.len() < 4 {
            positions.push(messages.next().await.unwrap().unwrap().position()); // two of each turn
        }
        positions
    });
    server.restart().await.unwrap();
    assert_eq!(session.send_and_wait("weather").await.unwrap().text, "The tool says: run 2");
    let positions = watching.await.unwrap();
    assert!(positions.is_sorted_by(|a, b| a < b), "{positions:?}");
    assert_eq!(runs.load(Ordering::SeqCst), 2);
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn dropped_server_leaves_nothing() {
    let (server, client) = started().await;
    client.create_session().await.unwrap(); // a CLI process, which uses the directory until it ends
    let socket = server.target().strip_prefix("unix:").unwrap().to_owned();
    let folder = std::path::Path::new(&socket).parent().unwrap();
    let processes = processes_that_name(folder);
    assert!(processes.len() > 1 && folder.exists(), "{processes:?}");
    drop((client, server));
    let gone = async {
        while folder.exists() || processes.iter().any(|process| process.exists()) {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(30), gone).await.unwrap();
    assert!(!folder.exists(), "a process wrote into the directory after it was deleted");
}

/// The processes that have a directory in their arguments or their environment, as directories of /proc.
#[cfg(target_os = "linux")]
fn processes_that_name(folder: &std::path::Path) -> Vec<std::path::PathBuf> {
    let name = folder.to_str().unwrap();
    let names = |file: std::path::PathBuf| {
        std::fs::read(file).is_ok_and(|bytes| String::from_utf8_lossy(&bytes).contains(name))
    };
    let processes = std::fs::read_dir("/proc").unwrap().map(|process| process.unwrap().path());
    processes.filter(|process| names(process.join("cmdline")) || names(process.join("environ"))).collect()
}

#[tokio::test]
async fn private_server_ends_with_its_client() {
    let folder = tempfile::tempdir().unwrap();
    let launch = || {
        Client::launch()
            .server_args(["--offline-model", "default", "--no-login", "--home"])
            .server_args([folder.path().join("home")])
            .server_env("XDG_STATE_HOME", folder.path().join("state")) // the parent of the default data directory
    };
    let client = launch().await.unwrap();
    assert!(client.server_info().await.unwrap().capabilities.as_ref().unwrap().offline_model);
    launch().await.expect("a second server at the same time").close().await;
    let other = client.clone();
    client.close().await;
    assert!(other.server_info().await.unwrap_err().is_broken());
}
