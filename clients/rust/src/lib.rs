//! A client of [copilot-grpc](https://github.com/copilot-grpc/copilot-grpc): sessions of the GitHub Copilot CLI with their
//! events, your tools and your answers to permission requests.
//!
//! ```no_run
//! use copilot_grpc::{Client, Tool, permission};
//!
//! #[derive(serde::Deserialize, schemars::JsonSchema)]
//! struct Weather {
//!     city: String,
//! }
//!
//! # async fn example() -> copilot_grpc::Result<()> {
//! let weather = Tool::new("get_weather", "Tells the weather in a city.", |args: Weather| async move {
//!     format!("rain in {}", args.city)
//! });
//! let client = Client::connect_default().await?;
//! let session = client.create_session().tool(weather).on_permission(permission::approve_all).await?;
//! let outcome = session.send_and_wait("What is the weather in Paris?").await?;
//! println!("{}", outcome.error_for_status()?.text);
//! # Ok(())
//! # }
//! ```
//!
//! Dropping a future ends its wait. It never takes back what the server has received: a sent prompt is answered, and its
//! turn continues, unless `abort_on_drop` is set.
//!
//! # Features
//!
//! - `tls` (default): connections with TLS, by rustls.
//! - `cli`: messages and clients of all services of `copilot.cli.v1`.
//! - `testing`: servers with a scripted model, for tests of agents.
//! - `opentelemetry`: handlers run in the trace of their callback, and prompts carry the current span.
//! - `server`: server stubs, for tests with a fake server.

#![cfg_attr(docsrs, feature(doc_cfg))]

pub mod answers;
mod attachments;
mod calls;
mod channel;
mod client;
mod connect;
mod connection;
mod core;
mod directory;
mod error;
mod events;
mod files;
mod frames;
mod handlers;
mod inbox;
mod info;
pub mod kind;
mod link;
mod membership;
mod model;
mod on;
mod open;
mod participant;
pub mod permission;
mod position;
mod prompt;
mod proto;
mod retry;
mod run;
mod send;
mod server;
mod session;
mod target;
#[cfg(feature = "testing")]
pub mod testing;
mod token;
mod tool;
mod tool_result;
mod trace;
mod transfer;
mod turn;
mod words;

pub use answers::{Form, FormValue, GitHubToken};
pub use attachments::Attachment;
pub use channel::{Channel, Pem};
pub use client::Client;
pub use connect::Connect;
pub use directory::DirectoryFiles;
pub use error::{Error, HandlerError, Reason, Result};
pub use events::{Entry, Event, Gap, GapReason, Start, Subscribe, Values};
pub use files::{FileInfo, Files, SessionFiles};
pub use handlers::{Abstain, RawRequest, Reply};
pub use inbox::{PendingCallback, PendingChange, PendingEnd, WatchPending};
pub use info::{SessionChange, SessionInfo};
pub use membership::ConnectionChange;
pub use model::{ModelBody, ModelReply, ModelRequest};
pub use open::{Join, Open, Opening, ParticipantOptions, SessionOptions};
pub use permission::PermissionRequest;
pub use position::Position;
pub use prompt::Prompt;
pub use proto::{bridge, cli};
pub use retry::Reconnect;
pub use run::{Deltas, Turn};
pub use send::{Receipt, SendPrompt};
pub use session::Session;
pub use token::Token;
pub use tonic::Code;
pub use tool::{NoArguments, Tool, ToolCall};
pub use tool_result::{IntoToolResult, Json, ToolError, ToolResult};
pub use transfer::ImportSession;
pub use turn::{Outcome, SendAndWait, TurnStatus};

pub use bridge::v1::{CallbackKind, Lifetime, OnInterruption, SessionChange as SessionChangeKind, SessionState};

/// Typed data of events, the largest oneof of `copilot.cli.v1`.
pub use cli::v1::session_event::Data;

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks a mutex. The library does not panic while it holds one.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A random id.
fn new_id() -> String {
    format!("{:032x}", fastrand::u128(..))
}
