//! Opens sessions as a participant.

use std::collections::HashMap;
use std::future::{Future, IntoFuture};
use std::marker::PhantomData;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;

use crate::bridge::v1 as bridge;
use crate::cli::v1 as cli;
use crate::client::Client;
use crate::error::{HandlerError, Result};
use crate::files::SessionFiles;
use crate::handlers::{Handlers, RawRequest, Reply};
use crate::kind;
use crate::membership::{ConnectionChange, ParticipantOptions};
use crate::model::{ModelReply, ModelRequest, Models};
use crate::participant::Participant;
use crate::permission::{PermissionRequest, Rules};
use crate::session::{Session, request_id_or_new};
use crate::tool::Tool;

mod sealed {
    pub trait Sealed {}
}

/// How a [`SessionBuilder`] opens its session: [`Create`], [`Resume`] or [`Join`].
pub trait Opening: sealed::Sealed + Send + 'static {
    #[doc(hidden)]
    const IS_NEW: bool;
    #[doc(hidden)]
    fn session(options: Options) -> bridge::attach_start::Session;
}

/// An [`Opening`] that also configures the session.
pub trait Configuring: Opening {}

/// Creates a session.
#[derive(Debug)]
pub enum Create {}

/// Opens a session, from the CLI's history if necessary.
#[derive(Debug)]
pub enum Resume {}

/// Joins an open session.
#[derive(Debug)]
pub enum Join {}

impl sealed::Sealed for Create {}
impl sealed::Sealed for Resume {}
impl sealed::Sealed for Join {}
impl Configuring for Create {}
impl Configuring for Resume {}

impl Opening for Create {
    const IS_NEW: bool = true;

    fn session(options: Options) -> bridge::attach_start::Session {
        bridge::attach_start::Session::Create(Box::new(bridge::CreateSessionRequest {
            request_id: request_id_or_new(options.request_id),
            session_id: options.session_id,
            config: options.config,
            lifetime: options.lifetime,
            handlers: options.session_handlers,
            callback_timeout: options.callback_timeout,
            cloud: options.cloud,
            runtime_profile: options.runtime_profile,
            provider_ref: options.provider_ref,
            labels: options.labels,
            node_labels: options.node_labels,
            on_interruption: options.on_interruption,
            update_mask: update_mask(options.clear),
        }))
    }
}

impl Opening for Resume {
    const IS_NEW: bool = false;

    fn session(options: Options) -> bridge::attach_start::Session {
        bridge::attach_start::Session::Resume(Box::new(bridge::ResumeSessionRequest {
            request_id: request_id_or_new(options.request_id),
            session_id: options.session_id,
            config: options.config,
            continue_pending_work: options.continue_pending_work,
            lifetime: options.lifetime,
            handlers: options.session_handlers,
            callback_timeout: options.callback_timeout,
            options: options.resume,
            runtime_profile: options.runtime_profile,
            provider_ref: options.provider_ref,
            on_interruption: options.on_interruption,
            update_mask: update_mask(options.clear),
        }))
    }
}

impl Opening for Join {
    const IS_NEW: bool = false;

    fn session(options: Options) -> bridge::attach_start::Session {
        bridge::attach_start::Session::JoinSessionId(options.session_id)
    }
}

fn update_mask(paths: Vec<String>) -> Option<prost_types::FieldMask> {
    (!paths.is_empty()).then_some(prost_types::FieldMask { paths })
}

#[doc(hidden)]
#[derive(Default)]
pub struct Options {
    session_id: String,
    labels: HashMap<String, String>,
    node_labels: HashMap<String, String>,
    request_id: Option<String>,
    config: Option<cli::SessionConfig>,
    clear: Vec<String>,
    lifetime: i32,
    on_interruption: i32,
    session_handlers: Option<bridge::Handlers>,
    callback_timeout: Option<prost_types::Duration>,
    cloud: Option<cli::CloudSessionConfig>,
    runtime_profile: Option<bridge::RuntimeProfile>,
    provider_ref: String,
    continue_pending_work: bool,
    resume: Option<cli::SessionResumeExtras>,
}

/// Opens a session with this program as a participant; `await` it. See [`Client::create_session`].
///
/// A handler is an asynchronous function of the request. It returns the message that answers the callback, a short form,
/// [`Abstain`](crate::Abstain), or a `Result` of these. After an error or a panic the server uses the kind's safe
/// default; only the text of [`HandlerError::new`] leaves the program. Handlers run as tasks, so that nothing waits for a
/// slow one; they must not block their thread.
#[must_use = "await the builder to open the session"]
pub struct SessionBuilder<M: Opening> {
    client: Client,
    options: Options,
    participant: ParticipantOptions,
    pub(crate) handlers: Handlers,
    tools: Vec<Tool>,
    models: Option<Arc<Models>>,
    mode: PhantomData<fn() -> M>,
}

impl<M: Opening> SessionBuilder<M> {
    pub(crate) fn new(client: Client, session_id: String) -> Self {
        Self {
            client,
            options: Options { session_id, ..Options::default() },
            participant: ParticipantOptions::default(),
            handlers: Handlers::default(),
            tools: Vec::new(),
            models: None,
            mode: PhantomData,
        }
    }

    /// Adds a tool of this participant.
    pub fn tool(mut self, tool: Tool) -> Self {
        self.tools.push(tool);
        self
    }

    /// Adds tools of this participant.
    pub fn tools(mut self, tools: impl IntoIterator<Item = Tool>) -> Self {
        self.tools.extend(tools);
        self
    }

    /// Number of tool calls that run at once; default 16. Further calls wait.
    pub fn max_concurrent_tools(mut self, number: usize) -> Self {
        self.participant.max_tools = number.max(1);
        self
    }

    /// Name for users and logs; default: the client's.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.participant.name = Some(name.into());
        self
    }

    /// Time for which the server keeps the participation after a broken connection: up to an hour, default 30 s.
    pub fn grace(mut self, time: Duration) -> Self {
        self.participant.grace = Some(time);
        self
    }

    /// Adds a slash command that only this participant executes, with [`on_command`](Self::on_command).
    pub fn command(mut self, command: cli::CommandDeclaration) -> Self {
        self.participant.commands.push(command);
        self
    }

    /// Adds a canvas that this participant shows.
    pub fn canvas(mut self, canvas: cli::CanvasDeclaration) -> Self {
        self.participant.canvases.push(canvas);
        self
    }

    /// Sets the identity of the participant's canvases, stable across reconnections.
    pub fn canvas_provider(mut self, identity: cli::CanvasProviderIdentity) -> Self {
        self.participant.canvas_provider = Some(identity);
        self
    }

    /// Sets the identity of an extension.
    pub fn extension_info(mut self, identity: cli::ExtensionIdentity) -> Self {
        self.participant.extension_info = Some(identity);
        self
    }

    /// Receives changes of the connection. Must not block.
    pub fn on_connection(mut self, listener: impl Fn(ConnectionChange) + Send + Sync + 'static) -> Self {
        self.participant.listener = Some(Box::new(listener));
        self
    }

    /// Decides about permission requests. Short forms: true approves once, false rejects.
    pub fn on_permission<F, Fut>(mut self, decide: F) -> Self
    where
        F: Fn(PermissionRequest) -> Fut + Send + Sync + 'static,
        Fut: Future<Output: Reply<kind::Permission>> + Send + 'static,
    {
        self.handlers.on::<kind::Permission, _, _>(decide);
        self
    }

    /// Decides about permission requests by rules.
    pub fn permissions(self, rules: Rules) -> Self {
        self.on_permission(move |request| rules.clone().decide(request))
    }

    /// Answers callbacks that are newer than this library, by JSON-RPC method or event type, with a JSON value.
    pub fn on_request<F, Fut, T, E>(mut self, method: impl Into<String>, handler: F) -> Self
    where
        F: Fn(RawRequest) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = std::result::Result<T, E>> + Send + 'static,
        T: Serialize,
        E: Into<HandlerError>,
    {
        self.handlers.on_method(method.into(), handler);
        self
    }
}

impl<M: Configuring> SessionBuilder<M> {
    /// Model, provider, instructions, directories and so on. Later shortcuts override its fields. A resumed session keeps
    /// the values that are not given.
    pub fn config(mut self, config: cli::SessionConfig) -> Self {
        self.options.config = Some(config);
        self
    }

    /// The model.
    pub fn model(mut self, model: impl Into<String>) -> Self {
        self.config_mut().model = Some(model.into());
        self
    }

    /// The session's directory on the CLI's machine.
    pub fn working_directory(mut self, path: impl Into<String>) -> Self {
        self.config_mut().working_directory = Some(path.into());
        self
    }

    /// Sends the model's text as it arrives; required for [`Turn::deltas`](crate::Turn::deltas) to be more than one piece.
    pub fn streaming(mut self, streaming: bool) -> Self {
        self.config_mut().streaming = Some(streaming);
        self
    }

    /// Clears fields of the configuration, such as `["mcp_servers"]`: a list or map becomes empty, any other field is
    /// removed. An empty list or map in the configuration changes nothing; fields with a value there are set. A session
    /// that is created loses the values that the server gives to new sessions.
    pub fn clear<F: Into<String>>(mut self, fields: impl IntoIterator<Item = F>) -> Self {
        self.options.clear.extend(fields.into_iter().map(Into::into));
        self
    }

    /// Name of a model provider in the server's configuration, instead of the configuration's provider.
    pub fn provider_ref(mut self, name: impl Into<String>) -> Self {
        self.options.provider_ref = name.into();
        self
    }

    /// When the session ends; default: with [`Session::disconnect`] or [`Session::delete`].
    pub fn lifetime(mut self, lifetime: bridge::Lifetime) -> Self {
        self.options.lifetime = lifetime.into();
        self
    }

    /// The server's reaction to a turn that ends with its CLI process; default: it reports that. With
    /// [`bridge::OnInterruption::Continue`] it tells the agent to continue, at most three times in a row.
    pub fn interrupted_turns(mut self, what: bridge::OnInterruption) -> Self {
        self.options.on_interruption = what.into();
        self
    }

    /// Callbacks that wait for [`Session::resolve`] even if no participant handles them.
    pub fn session_handlers(mut self, handlers: bridge::Handlers) -> Self {
        self.options.session_handlers = Some(handlers);
        self
    }

    /// Time for which callbacks wait for an answer.
    pub fn callback_timeout(mut self, limit: Duration) -> Self {
        self.options.callback_timeout = limit.try_into().ok();
        self
    }

    /// Profile of the CLI process.
    pub fn runtime_profile(mut self, profile: bridge::RuntimeProfile) -> Self {
        let earlier = self.options.runtime_profile.take().unwrap_or_default();
        self.options.runtime_profile = Some(bridge::RuntimeProfile {
            session_fs: profile.session_fs.or(earlier.session_fs),
            model_inference: profile.model_inference.or(earlier.model_inference),
            ..profile
        });
        self
    }

    /// Makes the call idempotent across restarts of this program; default: a random id.
    pub fn request_id(mut self, id: impl Into<String>) -> Self {
        self.options.request_id = Some(id.into());
        self
    }

    /// Stores the session's files in this program. The server's policy must allow it.
    pub fn session_files(mut self, files: SessionFiles) -> Self {
        self.profile_mut().session_fs = Some(files.message());
        files.register(&mut self.handlers);
        self
    }

    /// Answers the session's model requests in this program. The server's policy must allow it.
    pub fn model_transport<F, Fut, E>(mut self, transport: F) -> Self
    where
        F: Fn(ModelRequest) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = std::result::Result<ModelReply, E>> + Send + 'static,
        E: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        self.profile_mut().model_inference = Some(Default::default());
        let models = Models::new(transport);
        models.register(&mut self.handlers);
        self.models = Some(models);
        self
    }

    fn config_mut(&mut self) -> &mut cli::SessionConfig {
        self.options.config.get_or_insert_with(Default::default)
    }

    fn profile_mut(&mut self) -> &mut bridge::RuntimeProfile {
        self.options.runtime_profile.get_or_insert_with(Default::default)
    }
}

impl SessionBuilder<Create> {
    /// Id of the new session: letters, digits, '-' and '_', at most 128 characters; default: a random UUID.
    pub fn session_id(mut self, id: impl Into<String>) -> Self {
        self.options.session_id = id.into();
        self
    }

    /// Adds a label, by which sessions can be listed.
    pub fn label(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.options.labels.insert(name.into(), value.into());
        self
    }

    /// A label that the session's server must have, as in a cluster whose replicas have different directories. May be
    /// called for several labels, all of which the server must have then.
    pub fn node_label(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.options.node_labels.insert(name.into(), value.into());
        self
    }

    /// The repository of a session in GitHub's cloud.
    pub fn cloud(mut self, cloud: cli::CloudSessionConfig) -> Self {
        self.options.cloud = Some(cloud);
        self
    }
}

impl SessionBuilder<Resume> {
    /// Keeps the callbacks that were pending when the session was unloaded.
    pub fn continue_pending_work(mut self) -> Self {
        self.options.continue_pending_work = true;
        self
    }

    /// Options that only a resume has.
    pub fn resume_options(mut self, options: cli::SessionResumeExtras) -> Self {
        self.options.resume = Some(options);
        self
    }
}

impl<M: Opening> SessionBuilder<M> {
    async fn open(mut self) -> Result<Session> {
        crate::tool::check(&self.tools)?;
        self.handlers.set_tools(&self.tools);
        let owned = self.handlers.declared_tools(true);
        if !owned.is_empty() {
            self.options.config.get_or_insert_with(Default::default).tools.extend(owned);
        }
        let connection = self.client.connection();
        let session = M::session(self.options);
        let opened = Participant::open(connection.clone(), self.participant, self.handlers, self.models, session);
        let (participant, started) = opened.await?;
        Ok(Session::participating(connection, participant, started.session.unwrap_or_default(), M::IS_NEW))
    }
}

impl<M: Opening> IntoFuture for SessionBuilder<M> {
    type Output = Result<Session>;
    type IntoFuture = Pin<Box<dyn Future<Output = Result<Session>> + Send>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.open())
    }
}
