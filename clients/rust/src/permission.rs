//! Permission requests of the agent, and rules that decide about them.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use crate::bridge::v1 as bridge;
use crate::bridge::v1::callback::Request;
use crate::cli::v1 as cli;
use crate::cli::v1::permission_decision::Variant as Verdict;
use crate::cli::v1::permission_request::Variant as Action;
use crate::error::HandlerError;
use crate::handlers::Reply;
use crate::kind::Permission;

const DENIED: &str = "Permission denied.";

/// A decision about a permission request; the methods of [`PermissionRequest`] make it.
#[derive(Clone, Debug, PartialEq)]
pub struct Decision {
    /// The decision as a message; none leaves the request to the next rule, and then to other participants.
    pub message: Option<cli::PermissionDecision>,
}

impl Decision {
    fn of(verdict: Verdict) -> Self {
        Self { message: Some(cli::PermissionDecision { variant: Some(verdict) }) }
    }
}

/// The agent asks for permission to do something.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct PermissionRequest {
    /// The session.
    pub session_id: String,
    /// Id of the callback, as in [`Session::resolve`](crate::Session::resolve).
    pub callback_id: String,
    /// Kind of the action: `shell`, `write`, `read`, `url`, `mcp`, `custom-tool`, `memory` and others.
    pub kind: String,
    /// The details, by kind; none for an unknown kind.
    pub action: Option<Action>,
    /// Everything else that the CLI says about the request.
    pub data: cli::PermissionRequestedData,
}

impl PermissionRequest {
    pub(crate) fn of(callback: bridge::Callback) -> Option<Self> {
        let Some(Request::Permission(mut data)) = callback.request else { return None };
        let action = data.permission_request.take().and_then(|request| request.variant);
        let (kind, action) = match action {
            Some(Action::Unrecognized(json)) => (kind_in(&json), None),
            Some(action) => (kind_of(&action).to_owned(), Some(action)),
            None => (String::new(), None),
        };
        let (session_id, callback_id) = (callback.session_id, callback.callback_id);
        Some(Self { session_id, callback_id, kind, action, data: *data })
    }

    /// Approves this request.
    pub fn approve(&self) -> Decision {
        Decision::of(Verdict::ApproveOnce(Default::default()))
    }

    /// Approves this request and equal ones for the rest of the session: the same commands, the same tool, all reading
    /// or all writing, or the URL's origin. A request without an equal, such as a hook's, is denied.
    pub fn approve_for_session(&self) -> Decision {
        Decision::of(Verdict::ApproveForSession(Default::default()))
    }

    /// Rejects the request with a text for the agent. An empty text also aborts the turn.
    pub fn reject(&self, feedback: impl Into<String>) -> Decision {
        let feedback = Some(feedback.into()).filter(|text| !text.is_empty());
        Decision::of(Verdict::Reject(cli::PermissionDecisionReject { feedback, ..Default::default() }))
    }

    /// Rejects the request because no user is available.
    pub fn user_not_available(&self) -> Decision {
        Decision::of(Verdict::UserNotAvailable(Default::default()))
    }

    /// Leaves the request to the next rule, and then to other participants.
    pub fn abstain(&self) -> Decision {
        Decision { message: None }
    }
}

#[allow(deprecated)] // the CLI still sends requests of old kinds
fn kind_of(action: &Action) -> &'static str {
    match action {
        Action::Shell(_) => "shell",
        Action::Write(_) => "write",
        Action::Read(_) => "read",
        Action::Mcp(_) => "mcp",
        Action::Url(_) => "url",
        Action::Memory(_) => "memory",
        Action::CustomTool(_) => "custom-tool",
        Action::Hook(_) => "hook",
        Action::ExtensionManagement(_) => "extension-management",
        Action::Factory(_) => "factory",
        Action::ExtensionPermissionAccess(_) => "extension-permission-access",
        Action::ExtensionEnvAccess(_) => "extension-env-access",
        Action::Workflow(_) => "workflow",
        Action::Unrecognized(_) => "",
    }
}

/// The kind in the JSON text of an action that this library does not know.
fn kind_in(json: &str) -> String {
    let value: serde_json::Value = serde_json::from_str(json).unwrap_or_default();
    value.get("kind").and_then(|kind| kind.as_str()).unwrap_or_default().to_owned()
}

impl Reply<Permission> for Decision {
    fn reply(self, (): &()) -> Result<Option<cli::PermissionDecision>, HandlerError> {
        Ok(self.message)
    }
}

impl Reply<Permission> for bool {
    /// True approves once, false rejects.
    fn reply(self, (): &()) -> Result<Option<cli::PermissionDecision>, HandlerError> {
        let verdict = match self {
            true => Verdict::ApproveOnce(Default::default()),
            false => Verdict::Reject(cli::PermissionDecisionReject {
                feedback: Some(DENIED.to_owned()),
                ..Default::default()
            }),
        };
        Ok(Decision::of(verdict).message)
    }
}

/// Approves every request once: for sandboxes and tests.
pub async fn approve_all(request: PermissionRequest) -> Decision {
    request.approve()
}

/// Rejects every request.
pub async fn deny_all(request: PermissionRequest) -> Decision {
    request.reject(DENIED)
}

type Verdicts = Pin<Box<dyn Future<Output = Result<Option<cli::PermissionDecision>, HandlerError>> + Send>>;
type Rule = Arc<dyn Fn(PermissionRequest) -> Verdicts + Send + Sync>;

/// Rules that are asked in their order until one does not abstain. If all abstain, the request is left to other
/// participants.
///
/// ```
/// use copilot_grpc::permission::Rules;
///
/// let rules = Rules::new()
///     .approve(["read"])
///     .approve_for_session(["write"])
///     .reject(["url"], "There is no network.")
///     .otherwise(|request| async move { request.kind == "custom-tool" });
/// ```
#[derive(Clone, Default)]
pub struct Rules(Vec<Rule>);

impl Rules {
    /// No rules: every request is left to other participants.
    pub fn new() -> Self {
        Self::default()
    }

    /// Approves requests of these kinds once.
    pub fn approve<S: Into<String>>(self, kinds: impl IntoIterator<Item = S>) -> Self {
        self.of_kinds(kinds, PermissionRequest::approve)
    }

    /// Approves requests of these kinds, and equal ones, for the rest of the session.
    pub fn approve_for_session<S: Into<String>>(self, kinds: impl IntoIterator<Item = S>) -> Self {
        self.of_kinds(kinds, PermissionRequest::approve_for_session)
    }

    /// Rejects requests of these kinds with a text for the agent.
    pub fn reject<S: Into<String>>(self, kinds: impl IntoIterator<Item = S>, feedback: impl Into<String>) -> Self {
        let feedback = feedback.into();
        self.of_kinds(kinds, move |request| request.reject(feedback.clone()))
    }

    /// Asks a function, which may abstain.
    pub fn otherwise<F, Fut>(mut self, decide: F) -> Self
    where
        F: Fn(PermissionRequest) -> Fut + Send + Sync + 'static,
        Fut: Future<Output: Reply<Permission>> + Send + 'static,
    {
        self.0.push(Arc::new(move |request| {
            let verdict = decide(request);
            Box::pin(async move { verdict.await.reply(&()) })
        }));
        self
    }

    fn of_kinds<S: Into<String>>(
        self,
        kinds: impl IntoIterator<Item = S>,
        decide: impl Fn(&PermissionRequest) -> Decision + Send + Sync + 'static,
    ) -> Self {
        let kinds: Vec<String> = kinds.into_iter().map(Into::into).collect();
        self.otherwise(move |request| {
            let known = kinds.contains(&request.kind);
            std::future::ready(if known { decide(&request) } else { request.abstain() })
        })
    }

    /// The decision of the first rule that does not abstain.
    pub(crate) async fn decide(self, request: PermissionRequest) -> Result<Decision, HandlerError> {
        for rule in &self.0 {
            let message = rule(request.clone()).await?;
            if message.is_some() {
                return Ok(Decision { message });
            }
        }
        Ok(request.abstain())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(action: Action) -> PermissionRequest {
        let request = cli::PermissionRequest { variant: Some(action) };
        let data = cli::PermissionRequestedData { permission_request: Some(request), ..Default::default() };
        let request = Some(Request::Permission(Box::new(data)));
        PermissionRequest::of(bridge::Callback { request, ..Default::default() }).unwrap()
    }

    #[tokio::test]
    async fn the_first_rule_that_does_not_abstain_decides() {
        let rules = Rules::new()
            .approve(["read", "memory"])
            .approve_for_session(["write"])
            .reject(["url"], "No network.")
            .otherwise(|request| async move {
                if request.kind == "hook" { request.abstain() } else { request.user_not_available() }
            })
            .otherwise(|request| async move { request.kind == "custom-tool" });
        let known = |action| request(action);
        let approve = |request: &PermissionRequest| request.approve();
        type Want = fn(&PermissionRequest) -> Decision;
        let cases: [(PermissionRequest, &str, Want); 6] = [
            (known(Action::Read(Default::default())), "read", approve),
            (known(Action::Memory(Default::default())), "memory", approve),
            (known(Action::Write(Default::default())), "write", |request| request.approve_for_session()),
            (known(Action::Url(Default::default())), "url", |request| request.reject("No network.")),
            (known(Action::Unrecognized(r#"{"kind":"new"}"#.into())), "new", |r| r.user_not_available()),
            (known(Action::Hook(Default::default())), "hook", |request| request.reject(DENIED)),
        ];
        for (request, kind, want) in cases {
            assert_eq!(request.kind, kind);
            assert_eq!(rules.clone().decide(request.clone()).await.unwrap(), want(&request), "{kind}");
        }
    }

    #[tokio::test]
    async fn without_a_decision_others_may_answer() {
        let hook = request(Action::Hook(Default::default()));
        assert_eq!(Rules::new().approve(["read"]).decide(hook.clone()).await.unwrap().message, None);
        assert_eq!(Rules::new().decide(hook).await.unwrap().message, None);
    }

    #[test]
    fn unreadable_actions_have_no_kind() {
        for json in ["", "[]", "{}", r#"{"kind":7}"#] {
            assert_eq!(request(Action::Unrecognized(json.into())).kind, "", "{json:?}");
        }
    }
}
