//! A private server: a child process of this program.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::process::{Child, Command};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::error::{Error, Reason, Result};

const STARTED: &str = "address=";
/// Time for the server's orderly end.
const STOP_TIMEOUT: Duration = Duration::from_secs(20);
const MAX_LINES: usize = 1000;
/// Runs a program until it ends or the standard input does, which happens at the latest with this program's own end.
/// It then deletes a directory, unless it has read a line: the program and its own children may use the directory until
/// they have ended. The end of the output is the end of the program, because the shell closes its own.
const SUPERVISE: &str = r#"folder=$1; shift; "$@" & child=$!; exec >/dev/null 2>&1
read -r keep; kill "$child"; wait "$child"; [ -n "$keep" ] || rm -rf "$folder""#;

/// How to start a private server.
#[derive(Clone, Debug)]
pub(crate) struct Launch {
    pub(crate) binary: PathBuf,
    pub(crate) args: Vec<OsString>,
    pub(crate) env: Vec<(OsString, OsString)>,
    pub(crate) start_timeout: Duration,
}

impl Default for Launch {
    fn default() -> Self {
        Self {
            binary: "copilot-grpc".into(),
            args: Vec::new(),
            env: Vec::new(),
            start_timeout: Duration::from_secs(60),
        }
    }
}

/// `copilot-grpc serve` on a socket of its own. The server ends with the last value, or with this program.
pub(crate) struct ServerProcess {
    launch: Launch,
    folder: PathBuf,
    output: Arc<Mutex<VecDeque<String>>>,
    running: tokio::sync::Mutex<Option<Running>>,
}

struct Running {
    shell: Child,
    reading: JoinHandle<()>,
}

#[derive(Clone, Copy, PartialEq)]
enum State {
    Starting,
    Listening,
    Ended,
}

impl ServerProcess {
    /// Starts a server and waits until it listens. `configure` writes files into the server's directory and returns
    /// further arguments.
    pub(crate) async fn start(
        mut launch: Launch,
        configure: impl FnOnce(&Path) -> std::io::Result<Vec<OsString>>,
    ) -> Result<Self> {
        // A socket's path must be short, so that the test runner's directories are not an option.
        let folder = tempfile::Builder::new().prefix("cgrpc-").tempdir().map_err(failed)?;
        launch.args.extend(configure(folder.path()).map_err(failed)?);
        let path = folder.path().to_owned();
        let server = Self { launch, folder: path, output: Arc::default(), running: tokio::sync::Mutex::default() };
        server.run().await?;
        let _ = folder.keep(); // from now on the shell deletes it
        Ok(server)
    }

    /// The server's address.
    pub(crate) fn target(&self) -> String {
        format!("unix:{}", self.folder.join("s.sock").display())
    }

    /// The last lines that the server has printed.
    pub(crate) fn output(&self) -> String {
        let lines = crate::lock(&self.output);
        lines.iter().map(|line| format!("{line}\n")).collect()
    }

    /// Ends the server and deletes its directory. Ending it again does nothing.
    pub(crate) async fn stop(&self) {
        self.end("").await;
    }

    /// Ends the server. The directory remains after a line.
    async fn end(&self, line: &str) {
        let Some(mut running) = self.running.lock().await.take() else { return };
        if let Some(mut input) = running.shell.stdin.take() {
            let _ = input.write_all(line.as_bytes()).await; // it fails only if the shell has ended
        }
        if tokio::time::timeout(STOP_TIMEOUT, running.shell.wait()).await.is_err() {
            tracing::warn!("private server did not end in time");
        }
        running.reading.abort();
    }

    /// Ends the server and starts it again in its directory.
    #[cfg(feature = "testing")]
    pub(crate) async fn restart(&self) -> Result<()> {
        self.end("keep\n").await;
        crate::lock(&self.output).clear();
        self.run().await
    }

    async fn run(&self) -> Result<()> {
        let binary = find(&self.launch.binary)?;
        let mut shell = Command::new("/bin/sh")
            .args(["-c", SUPERVISE, "sh"])
            .args([&self.folder, &binary])
            .args(["serve", "--listen", &self.target(), "--data-dir"])
            .arg(self.folder.join("data")) // the last of these options counts
            .args(&self.launch.args)
            .envs(self.launch.env.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(failed)?;
        let (state, mut changes) = watch::channel(State::Starting);
        let (stdout, stderr) = (shell.stdout.take(), shell.stderr.take());
        let output = self.output.clone();
        let reading = tokio::spawn(async move {
            tokio::join!(
                read(stdout.map(BufReader::new), &output, &state),
                read(stderr.map(BufReader::new), &output, &state),
            );
            state.send_replace(State::Ended);
        });
        *self.running.lock().await = Some(Running { shell, reading });
        let limit = self.launch.start_timeout;
        let started = tokio::time::timeout(limit, changes.wait_for(|state| *state != State::Starting)).await;
        let problem = match started.map(|state| state.map(|state| *state)) {
            Ok(Ok(State::Listening)) => return Ok(()),
            Ok(_) => "did not start",
            Err(_) => "did not start in time",
        };
        self.stop().await;
        let text = format!("{} {problem}: {}", binary.display(), self.output());
        Err(Error::new(Reason::ServerNotFound, text))
    }
}

/// Reads the server's output to its end.
async fn read(
    stream: Option<impl AsyncBufReadExt + Unpin>,
    output: &Mutex<VecDeque<String>>,
    state: &watch::Sender<State>,
) {
    let Some(stream) = stream else { return };
    let mut lines = stream.lines();
    while let Ok(Some(line)) = lines.next_line().await {
        if line.contains(STARTED) {
            state.send_replace(State::Listening);
        }
        let mut output = crate::lock(output);
        output.push_back(line);
        if output.len() > MAX_LINES {
            output.pop_front();
        }
    }
}

/// Looks a program up on PATH.
fn find(binary: &Path) -> Result<PathBuf> {
    let is_name = binary.components().count() == 1;
    let path = if is_name { std::env::var_os("PATH").unwrap_or_default() } else { OsString::new() };
    let found = std::env::split_paths(&path).map(|folder| folder.join(binary)).find(|path| path.is_file());
    found.or_else(|| binary.is_file().then(|| binary.to_owned())).ok_or_else(|| {
        let text = format!(
            "{:?} is not on PATH: install copilot-grpc, give its path with `Connect::binary`, or name a server that runs with \
             `Client::connect` or COPILOT_GRPC_TARGET",
            binary.display()
        );
        Error::new(Reason::ServerNotFound, text)
    })
}

fn failed(error: std::io::Error) -> Error {
    Error::new(Reason::ServerNotFound, format!("cannot start a server: {error}"))
}
