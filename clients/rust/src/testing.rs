//! A server whose model is a script, for tests of agents without an account or a network.
//!
//! ```no_run
//! use copilot_grpc::Client;
//! use copilot_grpc::testing::{Server, say};
//!
//! # async fn test() -> Result<(), Box<dyn std::error::Error>> {
//! let server = Server::start([say("rain").when_user("weather")]).await?;
//! let client = Client::connect(server.target()).await?;
//! let session = client.create_session().await?;
//! assert_eq!(session.send_and_wait("How is the weather?").await?.text, "rain");
//! # Ok(())
//! # }
//! ```
//!
//! The server needs `copilot-grpc` on `PATH` and a Copilot CLI, which it finds on `PATH` or installs. Conditions and steps
//! are those of `docs/offline-model.md` of the repository.

use std::ffi::OsString;
use std::future::{Future, IntoFuture};
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::time::Duration;

use serde_json::{Map, Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::error::{Error, Reason, Result};
use crate::server::{Launch, ServerProcess};

const MODEL: &str = "A script plays the model: "; // printed by the server
const RELEASE_TIMEOUT: Duration = Duration::from_secs(10);

/// A rule of a script: when it applies, and what the model does.
#[derive(Clone, Debug)]
pub struct Rule(Map<String, Value>);

impl Rule {
    /// Applies to prompts that contain a text.
    pub fn when_user(self, text: impl Into<String>) -> Self {
        self.when("user", Value::String(text.into()))
    }

    /// Applies to the results of a tool.
    pub fn when_tool_result(self, name: impl Into<String>) -> Self {
        self.when("tool_result", json!({"name": name.into()}))
    }

    /// Adds a condition of `docs/offline-model.md`.
    pub fn when(mut self, condition: &str, value: Value) -> Self {
        if let Value::Object(when) = self.0.entry("when").or_insert_with(|| json!({})) {
            when.insert(condition.to_owned(), value);
        }
        self
    }

    /// Sets another key of the rule, such as `times` or `name`.
    pub fn with(mut self, key: &str, value: Value) -> Self {
        self.0.insert(key.to_owned(), value);
        self
    }
}

/// A step of a rule.
pub type Step = Value;

/// The model sends text.
pub fn text(content: impl Into<String>) -> Step {
    json!({"text": content.into()})
}

/// The model calls a tool.
pub fn tool_call(name: impl Into<String>, arguments: Value) -> Step {
    json!({"tool_call": {"name": name.into(), "arguments": arguments}})
}

/// The model waits for [`Server::release`].
pub fn wait_for(gate: impl Into<String>) -> Step {
    json!({"wait_for": gate.into()})
}

/// The model answers with these steps.
pub fn reply(steps: impl IntoIterator<Item = Step>) -> Rule {
    let steps: Vec<Step> = steps.into_iter().collect();
    Rule(Map::from_iter([("when".to_owned(), json!({})), ("reply".to_owned(), Value::Array(steps))]))
}

/// The model answers with text. `{{user}}` and `{{tool_result}}` are replaced.
pub fn say(content: impl Into<String>) -> Rule {
    reply([text(content)])
}

/// Two rules: when the prompt contains a text, the model calls a tool; it answers the tool's result with text.
pub fn call(user: impl Into<String>, tool: &str, arguments: Value, then: impl Into<String>) -> [Rule; 2] {
    [reply([tool_call(tool, arguments)]).when_user(user), say(then).when_tool_result(tool)]
}

/// A script: rules, a whole script, or the path of a script.
#[derive(Clone, Debug)]
pub enum Script {
    /// Rules. Text that no rule matches is repeated.
    Rules(Vec<Rule>),
    /// The whole script, as the JSON form of its YAML.
    Whole(Value),
    /// The path of a script.
    File(PathBuf),
}

impl<R: IntoIterator<Item = Rule>> From<R> for Script {
    fn from(rules: R) -> Self {
        Self::Rules(rules.into_iter().collect())
    }
}

/// Starts a test server; `await` it. See [`Server::start`].
#[must_use = "await the value to start the server"]
#[derive(Clone, Debug)]
pub struct StartServer {
    script: Script,
    launch: Launch,
}

impl StartServer {
    /// The server's binary; default: `copilot-grpc` on `PATH`.
    pub fn binary(mut self, path: impl Into<PathBuf>) -> Self {
        self.launch.binary = path.into();
        self
    }

    /// Further arguments of `copilot-grpc serve`.
    pub fn args<S: Into<OsString>>(mut self, arguments: impl IntoIterator<Item = S>) -> Self {
        self.launch.args.extend(arguments.into_iter().map(Into::into));
        self
    }

    /// A further environment variable, such as `COPILOT_CLI_PATH`.
    pub fn env(mut self, name: impl Into<OsString>, value: impl Into<OsString>) -> Self {
        self.launch.env.push((name.into(), value.into()));
        self
    }

    /// Time limit of the start, which may install the CLI; default 2 min.
    pub fn start_timeout(mut self, limit: Duration) -> Self {
        self.launch.start_timeout = limit;
        self
    }
}

impl IntoFuture for StartServer {
    type Output = Result<Server>;
    type IntoFuture = Pin<Box<dyn Future<Output = Result<Server>> + Send>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async move {
            let process = ServerProcess::start(self.launch, |folder| configure(self.script, folder)).await?;
            Ok(Server { process })
        })
    }
}

/// Writes the script, and returns arguments that separate the server from the user's own.
fn configure(script: Script, folder: &Path) -> std::io::Result<Vec<OsString>> {
    let path = folder.join("model.yaml");
    let whole = match script {
        Script::File(path) => return Ok(arguments(&path, folder)),
        Script::Whole(whole) => whole,
        Script::Rules(rules) => {
            let rules: Vec<Value> = rules.into_iter().map(|rule| Value::Object(rule.0)).collect();
            json!({"rules": rules, "default": {"reply": [{"text": "You said: {{user}}"}]}})
        }
    };
    std::fs::write(&path, whole.to_string())?; // JSON is YAML
    Ok(arguments(&path, folder))
}

fn arguments(script: &Path, folder: &Path) -> Vec<OsString> {
    let mut arguments: Vec<OsString> = vec!["--no-login".into()];
    let options = [
        ("--offline-model", script.to_owned()),
        ("--home", folder.join("copilot")),
        ("--user-home", folder.to_owned()),
        ("--work-dir", folder.to_owned()),
    ];
    for (option, path) in options {
        arguments.extend([option.into(), path.into_os_string()]);
    }
    arguments
}

/// A private server with a scripted model, in directories of its own. Dropping the value ends the server.
pub struct Server {
    process: ServerProcess,
}

impl Server {
    /// Starts a server with a script.
    pub fn start(script: impl Into<Script>) -> StartServer {
        let launch = Launch { start_timeout: Duration::from_secs(120), ..Launch::default() };
        StartServer { script: script.into(), launch }
    }

    /// The address, for [`Client::connect`](crate::Client::connect).
    pub fn target(&self) -> String {
        self.process.target()
    }

    /// The last lines that the server has printed.
    pub fn output(&self) -> String {
        self.process.output()
    }

    /// Ends the server and starts it again with its sessions, on the same socket.
    pub async fn restart(&self) -> Result<()> {
        self.process.restart().await
    }

    /// Ends the server and waits for its end.
    pub async fn stop(self) {
        self.process.stop().await;
    }

    /// Lets the model continue after [`wait_for`].
    pub async fn release(&self, gate: &str) -> Result<()> {
        let released = async {
            let address = loop {
                match address_in(&self.output()) {
                    Some(address) => break address,
                    None => tokio::time::sleep(Duration::from_millis(10)).await,
                }
            };
            post(&address, &format!("/_offline/release?gate={gate}")).await
        };
        let failed = |text: String| Error::new(Reason::ServerNotFound, format!("cannot release {gate:?}: {text}"));
        match tokio::time::timeout(RELEASE_TIMEOUT, released).await {
            Ok(Ok(status)) if status.contains(" 2") => Ok(()),
            Ok(Ok(status)) => Err(failed(status)),
            Ok(Err(error)) => Err(failed(error.to_string())),
            Err(_) => Err(failed("the model does not answer".to_owned())),
        }
    }
}

/// The HOST:PORT of the model, from the server's output.
fn address_in(output: &str) -> Option<String> {
    let (_, rest) = output.rsplit_once(MODEL)?;
    Some(rest.split_whitespace().next()?.trim_start_matches("http://").trim_end_matches('/').to_owned())
}

/// Makes an HTTP request without a body. Returns the status line.
async fn post(address: &str, path: &str) -> std::io::Result<String> {
    let host = address.split('/').next().unwrap_or_default();
    let prefix = address.strip_prefix(host).unwrap_or_default();
    let mut stream = tokio::net::TcpStream::connect(host).await?;
    let request =
        format!("POST {prefix}{path} HTTP/1.1\r\nHost: {host}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut response = Vec::new();
    stream.read_to_end(&mut response).await?;
    let response = String::from_utf8_lossy(&response);
    Ok(response.lines().next().unwrap_or_default().to_owned())
}
