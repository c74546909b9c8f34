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
use crate::error::{Error, HandlerError, Reason, Result};
use crate::files::SessionFiles;
use crate::handlers::{Handlers, RawRequest, Reply};
use crate::kind;
use crate::membership::{ConnectionChange, Membership};
use crate::model::{ModelReply, ModelRequest, Models};
use crate::participant::Participant;
use crate::permission::{PermissionRequest, Rules};
use crate::session::{Session, request_id_or_new};
use crate::tool::Tool;

mod sealed {
    pub trait Sealed {}
}

/// What a [`SessionOptions`] does: [`Open`] or [`Join`].
pub trait Opening: sealed::Sealed + Send + 'static {}

/// Creates a session, resumes it, or whichever of the two is possible.
#[derive(Debug)]
pub enum Open {}

/// Joins an open session.
#[derive(Debug)]
pub enum Join {}

impl sealed::Sealed for Open {}
impl sealed::Sealed for Join {}
impl Opening for Open {}
impl Opening for Join {}

#[derive(Clone, Copy, PartialEq)]
pub(crate) enum How {
    Create,
    Resume,
    ResumeOrCreate,
    Join,
}

/// What the first frame of a participant says about its session.
pub(crate) struct Plan {
    how: How,
    options: Options,
}

impl Plan {
    /// Whether the first attempt creates the session.
    pub(crate) fn creates(&self) -> bool {
        self.how == How::Create
    }

    /// Whether the other way may succeed after an error: to create a session that does not exist, or to resume one that
    /// another caller has just created.
    pub(crate) fn has_other_way(&self, creates: bool, error: &Error) -> bool {
        let other = if creates { Reason::SessionExists } else { Reason::SessionNotFound };
        self.how == How::ResumeOrCreate && error.reason() == other
    }

    pub(crate) fn message(&self, creates: bool) -> bridge::attach_start::Session {
        use bridge::attach_start::Session;

        match self.how {
            How::Join => Session::JoinSessionId(self.options.session_id.clone()),
            _ if creates => Session::Create(Box::new(self.options.create())),
            _ => Session::Resume(Box::new(self.options.resume())),
        }
    }
}

#[derive(Clone, Default)]
struct Options {
    session_id: String,
    labels: HashMap<String, String>,
    node_labels: HashMap<String, String>,
    request_id: Option<String>,
    config: cli::SessionConfig,
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

impl Options {
    fn create(&self) -> bridge::CreateSessionRequest {
        let options = self.clone();
        bridge::CreateSessionRequest {
            config: Some(self.config()),
            update_mask: self.update_mask(),
            request_id: request_id_or_new(options.request_id),
            session_id: options.session_id,
            lifetime: options.lifetime,
            handlers: options.session_handlers,
            callback_timeout: options.callback_timeout,
            cloud: options.cloud,
            runtime_profile: options.runtime_profile,
            provider_ref: options.provider_ref,
            labels: options.labels,
            node_labels: options.node_labels,
            on_interruption: options.on_interruption,
        }
    }

    fn resume(&self) -> bridge::ResumeSessionRequest {
        let options = self.clone();
        bridge::ResumeSessionRequest {
            config: Some(self.config()),
            update_mask: self.update_mask(),
            request_id: request_id_or_new(options.request_id),
            session_id: options.session_id,
            continue_pending_work: options.continue_pending_work,
            lifetime: options.lifetime,
            handlers: options.session_handlers,
            callback_timeout: options.callback_timeout,
            options: options.resume,
            runtime_profile: options.runtime_profile,
            provider_ref: options.provider_ref,
            on_interruption: options.on_interruption,
        }
    }

    fn config(&self) -> cli::SessionConfig {
        let streaming = self.config.streaming.or(Some(true));
        cli::SessionConfig { streaming, ..self.config.clone() }
    }

    fn update_mask(&self) -> Option<prost_types::FieldMask> {
        (!self.clear.is_empty()).then(|| prost_types::FieldMask { paths: self.clear.clone() })
    }
}

/// The options of a participant that joins a session; `await` them to join.
pub type ParticipantOptions = SessionOptions<Join>;

/// The options of a session that this program opens as a participant; `await` them to open it. See
/// [`Client::create_session`].
///
/// [`Client::create_session`], [`Client::resume_session`] and [`Client::open_session`] return the same type, so that one
/// function can set the options for all of them:
///
/// ```no_run
/// # async fn example(client: copilot_grpc::Client) -> copilot_grpc::Result<()> {
/// use copilot_grpc::{SessionOptions, permission};
///
/// fn reviewer(session: SessionOptions) -> SessionOptions {
///     session.on_permission(permission::approve_all).label("team", "payments")
/// }
///
/// let session = reviewer(client.open_session("review-7")).await?;
/// # Ok(())
/// # }
/// ```
///
/// A handler is an asynchronous function of the request. It returns the message that answers the callback, a short form,
/// [`Abstain`](crate::Abstain), or a `Result` of these. After an error or a panic the server uses the kind's safe
/// default; only the text of [`HandlerError::new`] leaves the program. Handlers run as tasks, so that nothing waits for a
/// slow one; they must not block their thread.
#[must_use = "await the options to open the session"]
pub struct SessionOptions<M: Opening = Open> {
    client: Client,
    plan: Plan,
    participant: Membership,
    pub(crate) handlers: Handlers,
    tools: Vec<Tool>,
    models: Option<Arc<Models>>,
    mode: PhantomData<fn() -> M>,
}

impl<M: Opening> SessionOptions<M> {
    pub(crate) fn new(client: Client, how: How, session_id: String) -> Self {
        Self {
            client,
            plan: Plan { how, options: Options { session_id, ..Options::default() } },
            participant: Membership::default(),
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

impl SessionOptions {
    /// Model, provider, instructions, directories and so on. Later shortcuts override its fields. A resumed session keeps
    /// the values that are not given, except that its text arrives in pieces; see [`streaming`](Self::streaming).
    pub fn config(mut self, config: cli::SessionConfig) -> Self {
        self.plan.options.config = config;
        self
    }

    /// The model.
    pub fn model(mut self, model: impl Into<String>) -> Self {
        self.plan.options.config.model = Some(model.into());
        self
    }

    /// The session's directory on the CLI's machine.
    pub fn working_directory(mut self, path: impl Into<String>) -> Self {
        self.plan.options.config.working_directory = Some(path.into());
        self
    }

    /// Whether the model's text arrives in pieces; default: it does. Without that, [`Turn::deltas`](crate::Turn::deltas)
    /// returns whole messages.
    pub fn streaming(mut self, streaming: bool) -> Self {
        self.plan.options.config.streaming = Some(streaming);
        self
    }

    /// Clears fields of the configuration, such as `["mcp_servers"]`: a list or map becomes empty, any other field is
    /// removed. An empty list or map in the configuration changes nothing; fields with a value there are set. A session
    /// that is created loses the values that the server gives to new sessions.
    pub fn clear<F: Into<String>>(mut self, fields: impl IntoIterator<Item = F>) -> Self {
        self.plan.options.clear.extend(fields.into_iter().map(Into::into));
        self
    }

    /// Name of a model provider in the server's configuration, instead of the configuration's provider.
    pub fn provider_ref(mut self, name: impl Into<String>) -> Self {
        self.plan.options.provider_ref = name.into();
        self
    }

    /// When the session ends; default: [`Lifetime::Keep`](bridge::Lifetime::Keep), until [`Session::disconnect`] or
    /// [`Session::delete`].
    pub fn lifetime(mut self, lifetime: bridge::Lifetime) -> Self {
        self.plan.options.lifetime = lifetime.into();
        self
    }

    /// The server's reaction to a turn that ends with its CLI process; default: it reports that. With
    /// [`bridge::OnInterruption::Continue`] it tells the agent to continue, at most three times in a row.
    pub fn interrupted_turns(mut self, what: bridge::OnInterruption) -> Self {
        self.plan.options.on_interruption = what.into();
        self
    }

    /// Callbacks that wait for [`Session::resolve`] even if no participant handles them.
    pub fn session_handlers(mut self, handlers: bridge::Handlers) -> Self {
        self.plan.options.session_handlers = Some(handlers);
        self
    }

    /// Time for which callbacks wait for an answer.
    pub fn callback_timeout(mut self, limit: Duration) -> Self {
        self.plan.options.callback_timeout = limit.try_into().ok();
        self
    }

    /// Profile of the CLI process.
    pub fn runtime_profile(mut self, profile: bridge::RuntimeProfile) -> Self {
        let earlier = self.plan.options.runtime_profile.take().unwrap_or_default();
        self.plan.options.runtime_profile = Some(bridge::RuntimeProfile {
            session_fs: profile.session_fs.or(earlier.session_fs),
            model_inference: profile.model_inference.or(earlier.model_inference),
            ..profile
        });
        self
    }

    /// Makes the call idempotent across restarts of this program; default: a random id.
    pub fn request_id(mut self, id: impl Into<String>) -> Self {
        self.plan.options.request_id = Some(id.into());
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

    /// Id of the session: letters, digits, '-' and '_', at most 128 characters. Default for a new one: a random UUID.
    pub fn session_id(mut self, id: impl Into<String>) -> Self {
        self.plan.options.session_id = id.into();
        self
    }

    /// Adds a label, by which sessions can be listed. A session that exists keeps its labels;
    /// [`Session::update_labels`] changes them.
    pub fn label(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.plan.options.labels.insert(name.into(), value.into());
        self
    }

    /// A label that the session's server must have, as in a cluster whose replicas have different directories. May be
    /// called for several labels, all of which the server must have then. A session that exists keeps its own.
    pub fn node_label(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.plan.options.node_labels.insert(name.into(), value.into());
        self
    }

    /// The repository of a new session in GitHub's cloud.
    pub fn cloud(mut self, cloud: cli::CloudSessionConfig) -> Self {
        self.plan.options.cloud = Some(cloud);
        self
    }

    /// A resume keeps the callbacks that were pending when the session was unloaded.
    pub fn continue_pending_work(mut self) -> Self {
        self.plan.options.continue_pending_work = true;
        self
    }

    /// Further options of a resume. A session that is created has none.
    pub fn resume_options(mut self, options: cli::SessionResumeExtras) -> Self {
        self.plan.options.resume = Some(options);
        self
    }

    fn profile_mut(&mut self) -> &mut bridge::RuntimeProfile {
        self.plan.options.runtime_profile.get_or_insert_with(Default::default)
    }
}

impl<M: Opening> SessionOptions<M> {
    async fn open(mut self) -> Result<Session> {
        crate::tool::check(&self.tools)?;
        self.handlers.set_tools(&self.tools);
        let owned = self.handlers.declared_tools(true);
        if !owned.is_empty() {
            self.plan.options.config.tools.extend(owned);
        }
        let connection = self.client.connection();
        let opened = Participant::open(connection.clone(), self.participant, self.handlers, self.models, self.plan);
        let (participant, started, is_new) = opened.await?;
        Ok(Session::participating(connection, participant, started.session.unwrap_or_default(), is_new))
    }
}

impl<M: Opening> IntoFuture for SessionOptions<M> {
    type Output = Result<Session>;
    type IntoFuture = Pin<Box<dyn Future<Output = Result<Session>> + Send>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.open())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(plan: &Plan, creates: bool) -> (cli::SessionConfig, Vec<String>) {
        use bridge::attach_start::Session;

        let (config, mask) = match plan.message(creates) {
            Session::Create(request) => (request.config, request.update_mask),
            Session::Resume(request) => (request.config, request.update_mask),
            Session::JoinSessionId(id) => panic!("joins {id}"),
        };
        (config.unwrap(), mask.unwrap_or_default().paths)
    }

    #[test]
    fn sessions_stream_unless_an_option_says_otherwise() {
        for (given, want) in [(None, true), (Some(true), true), (Some(false), false)] {
            let config = cli::SessionConfig { streaming: given, model: Some("m".into()), ..Default::default() };
            let options = Options { config, clear: vec!["mcp_servers".into()], ..Options::default() };
            let plan = Plan { how: How::ResumeOrCreate, options };
            for creates in [true, false] {
                let (config, cleared) = self::config(&plan, creates);
                assert_eq!((config.streaming, config.model.as_deref()), (Some(want), Some("m")), "{given:?}");
                assert_eq!(cleared, ["mcp_servers"]);
            }
        }
    }

    #[test]
    fn each_attempt_has_a_request_id_of_its_own_unless_the_program_gives_one() {
        let ids = |request_id: Option<&str>| {
            let options = Options { request_id: request_id.map(Into::into), ..Options::default() };
            [options.resume().request_id, options.create().request_id, options.resume().request_id]
        };
        assert_eq!(ids(Some("mine")), ["mine"; 3]);
        let [first, second, third] = ids(None);
        assert!(!first.is_empty() && first != second && second != third && first != third);
    }
}
