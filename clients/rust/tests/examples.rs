//! The examples, on the real CLI with the model of `clients/example-model.yaml`.
#![allow(clippy::unwrap_used)]

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use copilot_grpc::testing::{Script, Server};
use copilot_grpc::{Client, Position};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::process::Command;

/// Bounds every wait of a test. It is far more than anything takes.
const PATIENCE: Duration = Duration::from_secs(120);

async fn start() -> Server {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../example-model.yaml");
    Server::start(Script::File(script)).await.unwrap()
}

/// An example, which cargo has built beside the tests.
fn example(name: &str, server: &Server) -> Command {
    let folder: PathBuf = std::env::current_exe().unwrap().parent().unwrap().parent().unwrap().join("examples");
    let mut command = Command::new(folder.join(name));
    command.env("COPILOT_GRPC_TARGET", server.target()).stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true);
    command
}

#[tokio::test]
async fn agent() {
    let server = start().await;
    let mut child = example("agent", &server).arg("What is the weather in Paris?").spawn().unwrap();
    let mut input = child.stdin.take().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut output = String::new();
    let reading = async {
        while let Some(line) = lines.next_line().await.unwrap() {
            output += &line;
            output += "\n";
            if line.contains("[y/n/s]") {
                input.write_all(b"y\n").await.unwrap();
            }
        }
    };
    tokio::time::timeout(PATIENCE, reading).await.unwrap();
    assert!(child.wait().await.unwrap().success(), "{output}");
    let want = r#"The tool says: {"sky":"rain","temperature":12}. Take a coat."#;
    assert!(output.contains("The agent asks for permission: custom-tool") && output.contains(want), "{output}");
}

#[tokio::test]
async fn shared() {
    let server = start().await;
    let output = tokio::time::timeout(PATIENCE, example("shared", &server).output()).await.unwrap().unwrap();
    let output = String::from_utf8_lossy(&output.stdout).into_owned();
    let want = [
        "participants: boss, worker\n",
        "boss: permits custom-tool\nworker: tells the weather in Paris\n",
        "agent: The tool says: rain in Paris. Take a coat.\n",
    ];
    assert!(want.iter().all(|part| output.contains(part)), "{output}");
}

#[tokio::test]
async fn watcher() {
    let server = start().await;
    let client = Client::connect(server.target()).await.unwrap();
    let session = client.create_session().await.unwrap();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("position");
    let mut positions: Vec<Position> = Vec::new();
    for _ in 0..2 {
        // The watcher ends in between, and the server restarts while it watches.
        let mut child = example("watcher", &server).arg(session.id()).arg(&file).spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        for restart in [false, true] {
            if restart {
                server.restart().await.unwrap();
            }
            let end = session.send_and_wait("Hello").await.unwrap().message_position.unwrap();
            let reading = async {
                while positions.last().is_none_or(|last| *last < end) {
                    let line = lines.next_line().await.unwrap().expect("the watcher has ended");
                    assert!(!line.starts_with("missing"), "{line}");
                    positions.push(line.split(' ').next().unwrap().parse().unwrap());
                }
            };
            tokio::time::timeout(PATIENCE, reading).await.unwrap();
        }
        child.kill().await.unwrap();
        // The watcher stores a position after it has printed the line: the next one continues with the stored position.
        let stored: Position = std::fs::read_to_string(&file).unwrap().parse().unwrap();
        positions.retain(|position| *position <= stored);
    }
    assert!(positions.is_sorted_by(|a, b| a < b), "{positions:?}");
}
