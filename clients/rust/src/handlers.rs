//! A participant's tools and handlers, and the answers that they give.

use std::any::Any;
use std::collections::{BTreeMap, HashMap};
use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::{Arc, Mutex};

use futures_util::FutureExt;
use serde::Serialize;
use serde_json::Value;
use tracing::Instrument;

use crate::bridge::v1 as bridge;
use crate::bridge::v1::CallbackKind;
use crate::bridge::v1::answer::Answer;
use crate::bridge::v1::callback::Request;
use crate::cli::v1 as cli;
use crate::error::HandlerError;
use crate::kind::Kind;
use crate::tool::{Tool, ToolCall};

/// An answer that exceeds the server's limit for messages, 16 MiB by default, would end the stream.
const MAX_ANSWER: usize = 15 << 20;

/// The result of a handler for a kind of callback: the kind's answer, a short form of it, [`Abstain`], or a `Result` of
/// these.
pub trait Reply<K: Kind> {
    /// The answer; none leaves the callback to other participants.
    fn reply(self, context: &K::Context) -> Result<Option<K::Answer>, HandlerError>;
}

/// The result of a handler that leaves the callback to other participants.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Abstain;

impl<K: Kind> Reply<K> for Abstain {
    fn reply(self, _: &K::Context) -> Result<Option<K::Answer>, HandlerError> {
        Ok(None)
    }
}

impl<K: Kind, T: Reply<K>, E: Into<HandlerError>> Reply<K> for Result<T, E> {
    fn reply(self, context: &K::Context) -> Result<Option<K::Answer>, HandlerError> {
        self.map_err(Into::into)?.reply(context)
    }
}

type Answering = Pin<Box<dyn Future<Output = Result<Option<Answer>, HandlerError>> + Send>>;
type Handler = Arc<dyn Fn(bridge::Callback) -> Answering + Send + Sync>;

/// A callback that is newer than this library.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct RawRequest {
    /// The session.
    pub session_id: String,
    /// Id of the callback, as in [`Session::resolve`](crate::Session::resolve).
    pub callback_id: String,
    /// The JSON-RPC method or the event type.
    pub method: String,
    /// Its parameters.
    pub params: Value,
}

/// Tools by their names.
pub(crate) type Tools = HashMap<String, Arc<Tool>>;

/// The functions of a participant, by the callbacks that they answer.
#[derive(Default)]
pub(crate) struct Handlers {
    by_kind: BTreeMap<i32, Handler>,
    by_hook: BTreeMap<&'static str, Handler>,
    by_method: BTreeMap<String, Handler>,
    tools: Mutex<Arc<Tools>>,
}

impl Handlers {
    /// Sets the handler of a kind.
    pub(crate) fn on<K, F, Fut>(&mut self, handler: F)
    where
        K: Kind,
        F: Fn(K::Request) -> Fut + Send + Sync + 'static,
        Fut: Future<Output: Reply<K>> + Send + 'static,
    {
        let erased: Handler = Arc::new(move |callback| {
            let Some(request) = K::request(callback) else { return Box::pin(std::future::ready(Err(unknown_form()))) };
            let context = K::context(&request);
            let reply = handler(request);
            Box::pin(async move { Ok(reply.await.reply(&context)?.map(K::answer)) })
        });
        match K::HOOK {
            Some(hook) => self.by_hook.insert(hook, erased),
            None => self.by_kind.insert(K::KIND.into(), erased),
        };
    }

    /// Sets the handler of a method that is newer than this library.
    pub(crate) fn on_method<F, Fut, T, E>(&mut self, method: String, handler: F)
    where
        F: Fn(RawRequest) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<T, E>> + Send + 'static,
        T: Serialize,
        E: Into<HandlerError>,
    {
        let erased: Handler = Arc::new(move |callback| {
            let request = match raw_request(callback) {
                Ok(request) => request,
                Err(error) => return Box::pin(std::future::ready(Err(error))),
            };
            let reply = handler(request);
            Box::pin(async move {
                let value = reply.await.map_err(Into::into)?;
                let result_json = serde_json::to_string(&value)?;
                Ok(Some(Answer::Raw(Box::new(bridge::RawAnswer { result_json }))))
            })
        });
        self.by_method.insert(method, erased);
    }

    /// Replaces the tools. Returns the earlier ones.
    pub(crate) fn set_tools(&self, tools: &[Tool]) -> Arc<Tools> {
        let by_name = tools.iter().map(|tool| (tool.name().to_owned(), Arc::new(tool.clone()))).collect();
        self.restore_tools(Arc::new(by_name))
    }

    pub(crate) fn restore_tools(&self, tools: Arc<Tools>) -> Arc<Tools> {
        std::mem::replace(&mut *crate::lock(&self.tools), tools)
    }

    fn tool(&self, name: &str) -> Option<Arc<Tool>> {
        crate::lock(&self.tools).get(name).cloned()
    }

    /// The definitions of the participant's tools, or of the session's, in a stable order.
    pub(crate) fn declared_tools(&self, owned_by_session: bool) -> Vec<cli::ToolDefinition> {
        let tools = crate::lock(&self.tools).clone();
        let mut declared: Vec<_> = tools
            .values()
            .filter(|tool| tool.is_owned_by_session() == owned_by_session)
            .map(|tool| tool.message())
            .collect();
        declared.sort_by(|a, b| a.name.cmp(&b.name));
        declared
    }

    /// The handlers for the start frame.
    pub(crate) fn announced(&self) -> bridge::Handlers {
        let permission = i32::from(CallbackKind::Permission);
        let hook = i32::from(CallbackKind::Hook);
        let mut kinds: Vec<i32> = self.by_kind.keys().copied().filter(|kind| *kind != permission).collect();
        if !self.by_hook.is_empty() && !kinds.contains(&hook) {
            kinds.push(hook);
            kinds.sort_unstable();
        }
        let every_hook = self.by_kind.contains_key(&hook);
        let hook_types = self.by_hook.keys().filter(|_| !every_hook).map(|hook| (*hook).to_owned()).collect();
        bridge::Handlers {
            permission: self.by_kind.contains_key(&permission),
            kinds,
            hook_types,
            methods: self.by_method.keys().cloned().collect(),
        }
    }

    /// Whether this participant answers a callback. `offered`: the server asks this participant.
    pub(crate) fn takes(&self, callback: &bridge::Callback, offered: bool) -> bool {
        if let Some(Request::ToolCall(call)) = &callback.request {
            return match self.tool(&call.tool_name) {
                Some(tool) => tool.has_function() && (offered || tool.is_owned_by_session()),
                None => offered, // the tool was just removed: `answer` abstains
            };
        }
        offered && self.handler(callback).is_some()
    }

    fn handler(&self, callback: &bridge::Callback) -> Option<Handler> {
        let found = match &callback.request {
            Some(Request::Raw(raw)) => self.by_method.get(&raw.method),
            Some(Request::Hook(hook)) => {
                self.by_hook.get(&*hook.hook_type).or_else(|| self.by_kind.get(&callback.kind))
            }
            _ => self.by_kind.get(&callback.kind),
        };
        found.cloned()
    }

    /// Answers a callback, in the callback's trace. Neither an error nor a panic of a handler leaves this function.
    pub(crate) async fn answer(&self, callback: bridge::Callback, id: &str) -> Answer {
        let (session_id, name, kind) = (callback.session_id.clone(), name_of(&callback), callback.kind());
        let span = crate::trace::span(&session_id, id, &callback.traceparent, &callback.tracestate);
        let answer = match callback.request {
            Some(Request::ToolCall(_)) => self.answer_tool(callback).instrument(span).await,
            _ => self.answer_other(callback).instrument(span).await,
        };
        let size = answer.as_ref().map_or(0, Answer::encoded_len);
        let failure = match answer {
            Ok(answer) if size <= MAX_ANSWER => return answer,
            Ok(_) => Failure::hidden(format!("the answer has {size} bytes, more than {MAX_ANSWER}")),
            Err(failure) => failure,
        };
        crate::trace::handler_failed(&session_id, id, &name, &failure.text);
        failure.answer(kind)
    }

    async fn answer_other(&self, callback: bridge::Callback) -> Result<Answer, Failure> {
        let answering = async {
            match self.handler(&callback) {
                Some(handler) => handler(callback).await,
                None => Err(unknown_form()),
            }
        };
        match AssertUnwindSafe(answering).catch_unwind().await {
            Ok(Ok(Some(answer))) => Ok(answer),
            Ok(Ok(None)) => Ok(Answer::Abstain(Box::default())),
            Ok(Err(HandlerError { text: Some(text), .. })) => Err(Failure { shown: Some(text.clone()), text }),
            Ok(Err(HandlerError { cause, .. })) => {
                Err(Failure::hidden(cause.map_or_else(String::new, |cause| cause.to_string())))
            }
            Err(panic) => Err(Failure::hidden(panic_text(&*panic))),
        }
    }

    async fn answer_tool(&self, callback: bridge::Callback) -> Result<Answer, Failure> {
        let Some(Request::ToolCall(request)) = callback.request else {
            return Err(Failure::hidden("no tool call".to_owned()));
        };
        let Some(tool) = self.tool(&request.tool_name) else { return Ok(Answer::Abstain(Box::default())) };
        let call = ToolCall {
            session_id: callback.session_id,
            callback_id: callback.callback_id,
            tool_call_id: request.tool_call_id,
            tool_name: request.tool_name,
            working_directory: request.working_directory.unwrap_or_default(),
            traceparent: callback.traceparent,
            tracestate: callback.tracestate,
        };
        let arguments = request.arguments_json.unwrap_or_default();
        match AssertUnwindSafe(tool.call(call, &arguments)).catch_unwind().await {
            Ok(Ok(result)) => {
                Ok(result.answer().map_or(Answer::Abstain(Box::default()), |answer| Answer::Tool(Box::new(answer))))
            }
            Ok(Err(error)) => Err(Failure { text: error.text, shown: error.shown }),
            Err(panic) => Err(Failure::hidden(panic_text(&*panic))),
        }
    }
}

/// The failure of a handler.
struct Failure {
    /// For the program's log.
    text: String,
    /// For the answer.
    shown: Option<String>,
}

impl Failure {
    fn hidden(text: String) -> Self {
        Self { text, shown: None }
    }

    /// The answer of a handler that failed. A tool's hidden text goes only to the session's record, a command's to its
    /// caller; what others read may reach the model.
    fn answer(self, kind: CallbackKind) -> Answer {
        let Self { text, shown } = self;
        match kind {
            CallbackKind::ToolCall => {
                let mut failed = crate::ToolResult::failure(shown.as_deref().unwrap_or("The tool failed."));
                failed.message.error = Some(text);
                Answer::Tool(Box::new(failed.answer().unwrap_or_default()))
            }
            CallbackKind::Command => answer_error(&text),
            _ => answer_error(shown.as_deref().unwrap_or("The handler failed.")),
        }
    }
}

/// The function that answers a callback, for the log.
fn name_of(callback: &bridge::Callback) -> String {
    match &callback.request {
        Some(Request::ToolCall(call)) => format!("tool {}", call.tool_name),
        Some(Request::Command(command)) => format!("command {}", command.command_name),
        Some(Request::Hook(hook)) => format!("hook {}", hook.hook_type),
        Some(Request::Raw(raw)) => format!("handler of {}", raw.method),
        _ => format!("handler of {}", callback.kind()),
    }
}

/// An error in place of an answer.
pub(crate) fn answer_error(text: &str) -> Answer {
    Answer::Error(Box::new(bridge::AnswerError { message: text.to_owned(), code: 0 }))
}

fn unknown_form() -> HandlerError {
    HandlerError::new("the request has a form that this library does not know")
}

fn raw_request(callback: bridge::Callback) -> Result<RawRequest, HandlerError> {
    let Some(Request::Raw(raw)) = callback.request else { return Err(unknown_form()) };
    let params = if raw.params_json.is_empty() { Value::Null } else { serde_json::from_str(&raw.params_json)? };
    let (session_id, callback_id) = (callback.session_id, callback.callback_id);
    Ok(RawRequest { session_id, callback_id, method: raw.method, params })
}

pub(crate) fn panic_text(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().copied().or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    format!("panic: {}", text.unwrap_or("no text"))
}
