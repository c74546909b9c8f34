//! The code of the README and of docs/clients.md, which must be the code below, on the real CLI with a scripted model.
#![allow(clippy::unwrap_used, dead_code, unused_variables)]

use std::collections::HashMap;
use std::path::Path;
use std::time::Duration;

use copilot_grpc::bridge::v1::{GetUsageRequest, Handlers, ListSessionsRequest, SessionFilter, UsageGroup};
use copilot_grpc::permission::Rules;
use copilot_grpc::testing::{Script, Server, call, say};
use copilot_grpc::{
    Attachment, Client, Data, Entry, Json, NoArguments, PendingChange, Prompt, Reason, Session, SessionOptions, Start,
    Token, Tool, ToolCall, ToolError, ToolResult, answers, permission,
};

use tokio::fs::File;

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

mod program {
    // [program]
    use copilot_grpc::{Client, Tool, permission};

    #[derive(serde::Deserialize, schemars::JsonSchema)]
    struct Weather {
        /// The city's English name.
        city: String,
    }

    #[tokio::main]
    async fn main() -> copilot_grpc::Result<()> {
        let weather = Tool::new("get_weather", "Tells the weather in a city.", |args: Weather| async move {
            format!("rain in {}", args.city)
        });
        let client = Client::connect_default().await?;
        let session = client.create_session().tool(weather).on_permission(permission::approve_all).await?;
        let outcome = session.send_and_wait("What is the weather in Paris?").await?;
        println!("{}", outcome.error_for_status()?.text);
        Ok(())
    }
    // [end]

    /// Runs the program in the process of a test: the test `program_in_a_process` starts one with a server.
    #[test]
    #[ignore = "started by program_in_a_process"]
    fn run() {
        main().unwrap();
    }
}

/// docs/clients.md has one fragment. It writes into the folder of its process.
mod guide {
    use super::*;

    async fn archive(client: &Client, other: &Client, session: &Session) -> Result<String> {
        // [archive]
        session.export_to(File::create_new("session.tar.gz").await?).await?;
        let made = other.import_session(File::open("session.tar.gz").await?).session_id("copy").await?;
        // [end]
        Ok(made.session.unwrap_or_default().session_id)
    }

    #[tokio::test]
    #[ignore = "started by archive_of_the_guide"]
    async fn run() -> Result<()> {
        let client = Client::connect_default().await?;
        let session = client.create_session().await?;
        session.send_and_wait("first").await?;
        println!("imported as {}", archive(&client, &client, &session).await?);
        Ok(())
    }
}

async fn outcome(session: &Session) -> Result<()> {
    // [outcome]
    let outcome = session.send_and_wait("Hello").idle_timeout(Duration::from_secs(60)).await?;
    if !outcome.is_completed() {
        println!("{} {:?}", outcome.status, outcome.error);
    }
    let outcome = outcome.error_for_status()?;
    // [end]
    assert_eq!(outcome.text, "You said: Hello");
    Ok(())
}

async fn turn(session: &Session) -> Result<()> {
    // [turn]
    let mut turn = session.run("Hello");
    let mut deltas = turn.deltas();
    while let Some(text) = deltas.next().await {
        print!("{}", text?);
    }

    let mut turn = session.run("What is the weather in Paris?");
    while let Some(entry) = turn.next().await {
        match entry?.data() {
            Some(Data::ToolExecutionStart(start)) => println!("tool {}", start.tool_name),
            Some(Data::AssistantMessage(message)) => println!("{}", message.content),
            _ => {}
        }
    }
    let outcome = turn.outcome().await?;
    // [end]
    assert!(outcome.is_completed());
    Ok(())
}

async fn attachments(session: &Session) -> Result<()> {
    // [attachments]
    let prompt = Prompt::new("Compare these.")
        .attach(Attachment::path("/etc/hostname"))
        .attach(Attachment::upload("Cargo.toml"))
        .attach(Attachment::bytes("a,b\n1,2\n", "text/csv").name("table.csv"));
    session.send(prompt).await?;
    // [end]
    Ok(())
}

async fn tools(session: &Session) -> Result<()> {
    // [tools]
    #[derive(serde::Deserialize, schemars::JsonSchema)]
    struct Forecast {
        city: String,
        /// 1 to 10.
        days: usize,
    }

    let forecast = Tool::new("forecast", "Forecasts the weather.", |args: Forecast| async move {
        if args.days > 10 {
            return Err(ToolError::new("At most 10 days.")); // the model reads this text
        }
        let history = std::fs::read_to_string("/etc/hostname")?; // the model reads only that the tool failed
        Ok(Json(vec![history.len(); args.days]))
    });
    let draw = Tool::with_call("draw_map", "Draws a map.", |call: ToolCall, _: NoArguments| async move {
        ToolResult::binary(*b"\x89PNG", "image/png").with_text(format!("For call {}.", call.tool_call_id))
    });
    session.set_tools([forecast.skip_permission(), draw]).await?;
    // [end]
    Ok(())
}

async fn permissions(client: &Client) -> Result<()> {
    // [permissions]
    let rules = Rules::new()
        .approve(["read"])
        .approve_for_session(["write"])
        .reject(["url"], "There is no network.")
        .otherwise(|request| async move { request.kind == "custom-tool" });
    let session = client
        .create_session()
        .permissions(rules)
        .on_user_input(|question| async move { question.choices.first().cloned().unwrap_or_default() })
        .on_exit_plan_mode(|_| async { true })
        .on_pre_tool_use(|hook| async move { println!("tool {}", hook.tool_name) })
        .await?;
    // [end]
    session.delete().await?;
    Ok(())
}

async fn events(session: &Session) -> Result<()> {
    // [events]
    let mut events = session.events().start(Start::Beginning).types(["user.message", "session.*"]).stream();
    while let Some(entry) = events.next().await {
        match entry? {
            Entry::Gap(gap) => println!("missing up to {}: {:?}", gap.through(), gap.reason()),
            Entry::Event(event) if event.event_type() == "session.start" => break,
            Entry::Event(event) => println!("{} {}", event.position(), event.event_type()),
        }
    }
    // [end]
    Ok(())
}

async fn open(client: &Client) -> Result<()> {
    // [open]
    fn reviewer(session: SessionOptions) -> SessionOptions {
        session.on_permission(permission::approve_all).label("team", "payments")
    }

    let session = reviewer(client.open_session("review-7")).await?;
    println!("{} is {}: {}", session.id(), session.info().state, session.info().title);
    // [end]
    session.delete().await?;
    Ok(())
}

async fn sessions(client: &Client) -> Result<()> {
    // [sessions]
    let session = client.create_session().label("team", "payments").await?;
    session.update_labels([("stage", "review")], ["draft"]).await?;
    let filter = SessionFilter { labels: HashMap::from([("team".into(), "payments".into())]), ..Default::default() };
    let payments = ListSessionsRequest { filter: Some(filter), ..Default::default() };
    for found in client.list_sessions(payments).collect().await? {
        println!("{} is {}: {}, {:?}", found.id, found.state, found.title, found.proto.labels);
    }
    let group_by = vec![UsageGroup::Day.into(), UsageGroup::Model.into()];
    for row in client.usage(GetUsageRequest { group_by, ..Default::default() }).await? {
        println!("{} {}: {} requests, cost {}", row.day, row.model_id, row.requests, row.cost);
    }
    // [end]
    session.delete().await?;
    Ok(())
}

async fn archives(client: &Client, session: &Session) -> Result<()> {
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("session.tar.gz");
    // [archives]
    session.export_to(File::create_new(&path).await?).await?;
    let archive = File::open(&path).await?;
    client.import_session(archive).session_id("copy").await?;
    let copy = client.resume_session("copy").await?;
    // [end]
    copy.delete().await?;
    Ok(())
}

async fn inbox(client: &Client) -> Result<()> {
    // [inbox]
    let mut changes = client.watch_pending().handle().label("team", "payments").stream();
    while let Some(change) = changes.next().await {
        match change? {
            PendingChange::Waiting(pending) => {
                println!("{} waits", pending.kind());
                pending.answer(answers::approve()).await?;
            }
            PendingChange::Ended(end) => println!("{} no longer waits", end.proto.callback_id),
            _ => {}
        }
    }
    // [end]
    Ok(())
}

#[allow(dead_code)]
async fn connections() -> Result<()> {
    async fn fetch_token() -> std::io::Result<String> {
        Ok("a-fresh-token".into())
    }
    // [connections]
    Client::connect("unix:/run/copilot-grpc.sock").await?;
    Client::connect("localhost:7443").token("a-static-token").await?;
    Client::connect("agents.example:443").token(Token::file("/run/secrets/token")).await?; // read again when it changes
    Client::connect("agents.example:443").token(Token::function(|| async { fetch_token().await })).await?;
    Client::connect("agents.example:443").ca("ca.pem").identity("client.pem", "client.key").await?;
    Client::launch().server_args(["--offline-model", "default"]).await?; // a private server
    // [end]
    Ok(())
}

async fn errors(client: &Client) -> Result<()> {
    // [errors]
    match client.get_session("no-such-session").await {
        Ok(session) => println!("{}", session.title),
        Err(error) if error.reason() == Reason::SessionNotFound => println!("{:?}", error.metadata().get("session_id")),
        Err(error) => println!("{} {:?}", error.code(), error.retry_after()),
    }
    // [end]
    Ok(())
}

#[tokio::test]
async fn testing() -> Result<()> {
    // [testing]
    let server = Server::start([say("rain").when_user("weather")]).await?;
    let client = Client::connect(server.target()).await?;
    let session = client.create_session().await?;
    assert_eq!(session.send_and_wait("How is the weather?").await?.text, "rain");
    // [end]
    Ok(())
}

#[tokio::test]
async fn snippets_run() -> Result<()> {
    let server = Server::start([]).await?;
    let client = Client::connect(server.target()).await?;
    let session = client.create_session().await?;
    outcome(&session).await?;
    turn(&session).await?;
    attachments(&session).await?;
    tools(&session).await?;
    permissions(&client).await?;
    events(&session).await?;
    open(&client).await?;
    sessions(&client).await?;
    archives(&client, &session).await?;
    errors(&client).await?;
    session.delete().await?;
    Ok(())
}

#[tokio::test]
async fn inbox_answers() -> Result<()> {
    let server = Server::start(call("weather", "get_weather", serde_json::json!({}), "{{tool_result}}")).await?;
    let client = Client::connect(server.target()).await?;
    let weather = Tool::new("get_weather", "Tells the weather.", |_: NoArguments| async { "rain" });
    let handlers = Handlers { permission: true, ..Default::default() };
    let session = client.create_session().tool(weather).label("team", "payments").session_handlers(handlers).await?;
    tokio::select! {
        outcome = session.send_and_wait("What is the weather?") => assert_eq!(outcome?.text, "rain"),
        ended = inbox(&client) => panic!("the inbox has ended: {ended:?}"),
    }
    Ok(())
}

#[tokio::test]
async fn archive_of_the_guide() -> Result<()> {
    let server = Server::start([]).await?;
    let folder = tempfile::tempdir()?;
    let output = tokio::process::Command::new(std::env::current_exe()?)
        .args(["guide::run", "--exact", "--ignored", "--nocapture"])
        .env("COPILOT_GRPC_TARGET", server.target())
        .current_dir(folder.path())
        .output()
        .await?;
    let output = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.contains("imported as copy"), "{output}");
    Ok(())
}

#[tokio::test]
async fn program_in_a_process() -> Result<()> {
    let arguments = serde_json::json!({"city": "Paris"});
    let server = Server::start(call("weather", "get_weather", arguments, "The tool says: {{tool_result}}")).await?;
    let output = tokio::process::Command::new(std::env::current_exe()?)
        .args(["program::run", "--exact", "--ignored", "--nocapture"])
        .env("COPILOT_GRPC_TARGET", server.target())
        .output()
        .await?;
    let output = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.contains("The tool says: rain in Paris"), "{output}");
    Ok(())
}

#[tokio::test]
async fn program_fails_with_its_turn() -> Result<()> {
    let server = Server::start(Script::Whole(serde_json::json!({"rules": []}))).await?;
    let output = tokio::process::Command::new(std::env::current_exe()?)
        .args(["program::run", "--exact", "--ignored", "--nocapture"])
        .env("COPILOT_GRPC_TARGET", server.target())
        .output()
        .await?;
    assert!(!output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    Ok(())
}

/// The code between two lines, without its indentation.
fn snippet(source: &str, name: &str) -> Option<String> {
    let (_, rest) = source.split_once(&format!("// [{name}]\n"))?;
    let (code, _) = rest.split_once("// [end]")?;
    let code: Vec<&str> = code.trim_end().lines().collect();
    let indent = code.iter().find(|line| !line.is_empty())?.chars().take_while(|c| *c == ' ').count();
    Some(code.iter().map(|line| format!("{}\n", line.get(indent..).unwrap_or_default())).collect())
}

#[test]
fn readme_has_the_code_of_this_file() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    let readme = std::fs::read_to_string(folder.join("README.md")).unwrap();
    let source = std::fs::read_to_string(folder.join("tests/readme.rs")).unwrap();
    let blocks: Vec<_> = readme.split("```rust\n").collect();
    assert!(blocks.len() > 10, "the README has lost its code");
    for pair in blocks.windows(2) {
        let mark = pair[0].trim_end().rsplit("\n").next().unwrap();
        let name = mark.trim_start_matches("<!-- ").trim_end_matches(" -->").split(": ").nth(1);
        let code = pair[1].split("```").next().unwrap();
        assert_eq!(Some(code), snippet(&source, name.unwrap_or(mark)).as_deref(), "after {mark}");
    }
}

#[test]
fn guide_has_the_code_of_this_file() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    let guide = std::fs::read_to_string(folder.join("../../docs/clients.md")).unwrap();
    let source = std::fs::read_to_string(folder.join("tests/readme.rs")).unwrap();
    let (_, rest) = guide.split_once("<!-- run: archive -->\n```rust\n").unwrap();
    assert_eq!(rest.split("```").next(), snippet(&source, "archive").as_deref());
}
