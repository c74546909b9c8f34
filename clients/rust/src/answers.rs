//! Short forms of answers, and answers to callbacks by id.

use std::collections::HashMap;
use std::time::Duration;

use serde::Serialize;
use serde_json::Value;

use crate::bridge::v1 as bridge;
use crate::bridge::v1::answer::Answer;
use crate::cli::v1 as cli;
use crate::error::HandlerError;
use crate::handlers::Reply;
use crate::kind;

type Answered<T> = Result<Option<T>, HandlerError>;

/// Implements short forms: `Kind for Type => Answer: |value, context| answer`.
macro_rules! short {
    ($($kind:ident for $type:ty => $answer:ty: |$value:pat_param, $context:pat_param| $body:expr;)*) => {
        $(impl Reply<kind::$kind> for $type {
            fn reply(self, $context: &<kind::$kind as kind::Kind>::Context) -> Answered<$answer> {
                let $value = self;
                Ok(Some($body))
            }
        })*
    };
}

short! {
    UserInput for String => cli::CallbackUserInputServiceRequestResponse: |answer, choices| {
        let was_freeform = !choices.contains(&answer);
        cli::CallbackUserInputServiceRequestResponse { answer, was_freeform, ..Default::default() }
    };
    Elicitation for Form => cli::UiElicitationResponse: |Form(content), _| cli::UiElicitationResponse {
        action: cli::UiElicitationResponseAction::Accept.into(), content, ..Default::default()
    };
    Elicitation for () => cli::UiElicitationResponse: |(), _| cli::UiElicitationResponse {
        action: cli::UiElicitationResponseAction::Decline.into(), ..Default::default()
    };
    ExitPlanMode for String => cli::CallbackExitPlanModeServiceRequestResponse: |feedback, _| {
        cli::CallbackExitPlanModeServiceRequestResponse { feedback: Some(feedback), ..Default::default() }
    };
    ExitPlanMode for bool => cli::CallbackExitPlanModeServiceRequestResponse: |approved, action| {
        let selected_action = approved.then(|| action.clone());
        cli::CallbackExitPlanModeServiceRequestResponse { approved, selected_action, ..Default::default() }
    };
    AutoModeSwitch for bool => cli::CallbackAutoModeSwitchServiceRequestResponse: |switch, _| {
        use cli::CallbackAutoModeSwitchServiceRequestResponseResponse as Response;

        let response = if switch { Response::Yes } else { Response::No };
        cli::CallbackAutoModeSwitchServiceRequestResponse { response: response.into(), ..Default::default() }
    };
    Hook for () => cli::HookOutput: |(), _| cli::HookOutput::default();
    SystemMessageTransform for HashMap<String, String> => cli::CallbackSystemMessageServiceTransformResponse:
        |changes, sections| {
            let text = |content| cli::SystemMessageSectionText { content, ..Default::default() };
            let mut sections = sections.clone();
            sections.extend(changes.into_iter().map(|(name, content)| (name, text(content))));
            cli::CallbackSystemMessageServiceTransformResponse { sections, ..Default::default() }
        };
    Command for () => bridge::CommandAnswer: |(), _| bridge::CommandAnswer::default();
    QueuedCommand for bool => cli::QueuedCommandResult: |handled, _| {
        use cli::queued_command_result::Variant;

        let variant =
            if handled { Variant::True(Default::default()) } else { Variant::False(Default::default()) };
        cli::QueuedCommandResult { variant: Some(variant) }
    };
    Sampling for Option<Value> => bridge::SamplingAnswer: |response, _| {
        bridge::SamplingAnswer { response_json: response.map(|value| value.to_string()) }
    };
    McpOauth for Option<String> => cli::McpOauthPendingRequestResponse: |token, _| {
        use cli::mcp_oauth_pending_request_response::Variant;

        let token = token.map(|access_token| {
            Variant::Token(cli::McpOauthPendingRequestResponseToken { access_token, ..Default::default() })
        });
        let variant = token.unwrap_or_else(|| Variant::Cancelled(Default::default()));
        cli::McpOauthPendingRequestResponse { variant: Some(variant) }
    };
    McpHeaders for Option<HashMap<String, String>> => cli::McpHeadersHandlePendingHeadersRefreshRequest:
        |headers, _| {
            use cli::mcp_headers_handle_pending_headers_refresh_request::Variant;

            let headers = headers.map(|headers| {
                let message = cli::McpHeadersHandlePendingHeadersRefreshRequestHeaders { headers, ..Default::default() };
                Variant::Headers(message)
            });
            let variant = headers.unwrap_or_else(|| Variant::None(Default::default()));
            cli::McpHeadersHandlePendingHeadersRefreshRequest { variant: Some(variant) }
        };
    ProviderToken for String => cli::CallbackProviderTokenServiceGetTokenResponse: |token, _| {
        cli::CallbackProviderTokenServiceGetTokenResponse { token, ..Default::default() }
    };
    GithubToken for Option<GitHubToken> => cli::CallbackGitHubTokenServiceGetTokenResponse: |token, _| {
        use cli::callback_git_hub_token_service_get_token_response::Variant;

        let token = token.map(|token| {
            Variant::Token(cli::CallbackGitHubTokenServiceGetTokenResponseToken {
                access_token: token.token,
                expires_in: i64::try_from(token.expires_in.as_secs()).unwrap_or(i64::MAX),
                ..Default::default()
            })
        });
        let variant = token.unwrap_or_else(|| Variant::Cancelled(Default::default()));
        cli::CallbackGitHubTokenServiceGetTokenResponse { variant: Some(variant) }
    };
    CanvasClose for () => cli::CallbackCanvasServiceCloseResponse: |(), _| Default::default();
    WorkflowAbort for () => cli::CallbackWorkflowServiceAbortResponse: |(), _| Default::default();
    FactoryAbort for () => cli::CallbackFactoryServiceAbortResponse: |(), _| Default::default();
    UiThread for () => cli::CallbackUiThreadServiceRunResponse: |(), _| Default::default();
    ModelRequestStart for () => cli::CallbackLlmInferenceServiceHttpRequestStartResponse: |(), _| Default::default();
    ModelRequestChunk for () => cli::CallbackLlmInferenceServiceHttpRequestChunkResponse: |(), _| Default::default();
}

/// Implements a short form by another one of the same kind.
macro_rules! same {
    ($($kind:ident for $type:ty as $other:ty: |$value:ident| $body:expr;)*) => {
        $(impl Reply<kind::$kind> for $type {
            fn reply(
                self,
                context: &<kind::$kind as kind::Kind>::Context,
            ) -> Answered<<kind::$kind as kind::Kind>::Answer> {
                let $value = self;
                <$other as Reply<kind::$kind>>::reply($body, context)
            }
        })*
    };
}

same! {
    UserInput for &str as String: |answer| answer.to_owned();
    ExitPlanMode for &str as String: |feedback| feedback.to_owned();
    ProviderToken for &str as String: |token| token.to_owned();
    Sampling for Value as Option<Value>: |response| Some(response);
    McpOauth for String as Option<String>: |token| Some(token);
    McpHeaders for HashMap<String, String> as Option<HashMap<String, String>>: |headers| Some(headers);
    GithubToken for GitHubToken as Option<GitHubToken>: |token| Some(token);
}

impl Reply<kind::Elicitation> for Option<Form> {
    /// None declines.
    fn reply(self, context: &()) -> Answered<cli::UiElicitationResponse> {
        match self {
            Some(form) => form.reply(context),
            None => Reply::<kind::Elicitation>::reply((), context),
        }
    }
}

/// A token of a GitHub account. The CLI requests another one an hour before it expires.
#[derive(Clone)]
pub struct GitHubToken {
    /// The token.
    pub token: String,
    /// Time until it expires.
    pub expires_in: Duration,
}

/// A form that was filled in.
///
/// ```
/// use copilot_grpc::Form;
///
/// let form = Form::new().field("name", "Ada").field("age", 36.0).field("subscribe", true);
/// ```
#[derive(Clone, Debug, Default)]
pub struct Form(HashMap<String, cli::UiElicitationFieldValue>);

impl Form {
    /// A form without fields.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets a field: a text, a number, a boolean or a list of texts.
    pub fn field(mut self, name: impl Into<String>, value: impl Into<FormValue>) -> Self {
        let value = cli::UiElicitationFieldValue { variant: Some(value.into().0) };
        self.0.insert(name.into(), value);
        self
    }
}

/// The value of a form's field.
#[derive(Clone, Debug)]
pub struct FormValue(cli::ui_elicitation_field_value::Variant);

impl From<&str> for FormValue {
    fn from(value: &str) -> Self {
        value.to_owned().into()
    }
}

impl From<String> for FormValue {
    fn from(value: String) -> Self {
        Self(cli::ui_elicitation_field_value::Variant::StringValue(value))
    }
}

impl From<f64> for FormValue {
    fn from(value: f64) -> Self {
        Self(cli::ui_elicitation_field_value::Variant::DoubleValue(value))
    }
}

impl From<bool> for FormValue {
    fn from(value: bool) -> Self {
        Self(cli::ui_elicitation_field_value::Variant::BoolValue(value))
    }
}

impl From<Vec<String>> for FormValue {
    fn from(items: Vec<String>) -> Self {
        Self(cli::ui_elicitation_field_value::Variant::List(cli::StringList { items }))
    }
}

fn message(answer: Answer) -> bridge::Answer {
    bridge::Answer { answer: Some(answer) }
}

/// Approves a permission request once.
pub fn approve() -> bridge::Answer {
    message(Answer::Approve(Box::default()))
}

/// Rejects a permission request with a text for the agent. An empty text also aborts the turn.
pub fn reject(feedback: impl Into<String>) -> bridge::Answer {
    message(Answer::Reject(Box::new(bridge::Reject { feedback: feedback.into() })))
}

/// Answers a tool call with a text for the model.
pub fn tool(text: impl Into<String>) -> bridge::Answer {
    let outcome = Some(bridge::tool_answer::Outcome::Text(text.into()));
    message(Answer::Tool(Box::new(bridge::ToolAnswer { outcome })))
}

/// Answers a question of the agent: `was_freeform` is false for one of its choices.
pub fn user_input(answer: impl Into<String>, was_freeform: bool) -> bridge::Answer {
    let answer = answer.into();
    let response = cli::CallbackUserInputServiceRequestResponse { answer, was_freeform, ..Default::default() };
    message(Answer::UserInput(Box::new(response)))
}

/// Answers any other callback with a JSON value. Fails if JSON cannot hold the value.
pub fn json(value: &impl Serialize) -> crate::Result<bridge::Answer> {
    let result_json = serde_json::to_string(value)
        .map_err(|error| crate::Error::invalid("answer", format!("the answer is no JSON: {error}")))?;
    Ok(message(Answer::Raw(Box::new(bridge::RawAnswer { result_json }))))
}

/// An error in place of an answer.
pub fn error(text: impl Into<String>) -> bridge::Answer {
    message(crate::handlers::answer_error(&text.into()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kind::*;

    fn reply<K: Kind<Context: Default>>(value: impl Reply<K>) -> K::Answer {
        value.reply(&K::Context::default()).unwrap().unwrap()
    }

    #[test]
    fn short_forms() {
        let choices = vec!["Paris".to_owned()];
        for (answer, was_freeform) in [("Paris", false), ("Rome", true)] {
            let made = Reply::<UserInput>::reply(answer, &choices).unwrap().unwrap();
            assert_eq!((made.answer.as_str(), made.was_freeform), (answer, was_freeform));
        }
        let plan = |reply: Answered<cli::CallbackExitPlanModeServiceRequestResponse>| reply.unwrap().unwrap();
        let action = "autopilot".to_owned();
        assert_eq!(plan(Reply::<ExitPlanMode>::reply(true, &action)).selected_action, Some(action.clone()));
        let refused = plan(Reply::<ExitPlanMode>::reply("Shorter.", &action));
        assert_eq!((refused.approved, refused.feedback.as_deref()), (false, Some("Shorter.")));
        assert_eq!(reply::<Elicitation>(()).action, 2);
        assert_eq!(reply::<Elicitation>(Some(Form::new().field("a", true))).content.len(), 1);
        assert_eq!(reply::<AutoModeSwitch>(true).response, 1);
        assert_eq!(reply::<Sampling>(serde_json::json!({"a": 1})).response_json.as_deref(), Some(r#"{"a":1}"#));
        assert_eq!(reply::<PreToolUse>(()).variant, None);
        let token = GitHubToken { token: "t".into(), expires_in: Duration::from_secs(60) };
        let Some(cli::callback_git_hub_token_service_get_token_response::Variant::Token(token)) =
            reply::<GithubToken>(token).variant
        else {
            panic!("no token");
        };
        assert_eq!((token.access_token.as_str(), token.expires_in), ("t", 60));
    }

    #[test]
    fn sections_that_do_not_change_stay() {
        let text = |content: &str| cli::SystemMessageSectionText { content: content.into(), ..Default::default() };
        let sections = HashMap::from([("a".to_owned(), text("1")), ("b".to_owned(), text("2"))]);
        let changes = HashMap::from([("b".to_owned(), "3".to_owned())]);
        let made = Reply::<SystemMessageTransform>::reply(changes, &sections).unwrap().unwrap();
        assert_eq!((made.sections["a"].content.as_str(), made.sections["b"].content.as_str()), ("1", "3"));
    }

    #[test]
    fn errors_and_abstentions() {
        assert!(Reply::<Command>::reply(crate::Abstain, &()).unwrap().is_none());
        let failed: Result<(), HandlerError> = Err(HandlerError::new("no"));
        assert_eq!(Reply::<Command>::reply(failed, &()).unwrap_err().text.as_deref(), Some("no"));
        let hidden = Err::<(), _>(std::io::Error::other("secret"));
        assert_eq!(Reply::<Command>::reply(hidden, &()).unwrap_err().text, None);
    }
}
