//! The functions of a case's program.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use copilot_grpc::cli::v1 as cli;
use copilot_grpc::permission::Decision;
use copilot_grpc::{
    ConnectionChange, Form, GitHubToken, HandlerError, Json, Lifetime, OnInterruption, Opening, PermissionRequest, RawRequest,
    SessionOptions, Tool, ToolError, ToolResult,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize, Serializer};

use crate::pb;
use crate::runner::Runner;

/// The arguments of every tool.
#[derive(Deserialize, Serialize, JsonSchema)]
struct Query {
    /// A city.
    city: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    days: Option<i32>,
}

pub fn tool(runner: &Arc<Runner>, session: &str, message: pb::Tool) -> Tool {
    let (runner, session) = (runner.clone(), session.to_owned());
    let name = message.name.clone();
    let description = "Tells about a city.";
    let mut tool = if message.declared_only {
        let schema = serde_json::json!({"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]});
        Tool::declared(name, description, schema)
    } else {
        let behaviour = message.behaviour.clone().unwrap_or_default();
        Tool::new(name.clone(), description, move |query: Query| {
            let (runner, session, name, behaviour) = (runner.clone(), session.clone(), name.clone(), behaviour.clone());
            async move {
                let arguments = serde_json::to_string(&query).unwrap_or_default();
                let observation = runner.observe(&session, "tool", &name, &arguments);
                runner.gate(observation, &behaviour.gate).await;
                behave(behaviour, &query.city)
            }
        })
    };
    if message.skip_permission {
        tool = tool.skip_permission();
    }
    if message.owned_by_session { tool.owned_by_session() } else { tool }
}

fn behave(behaviour: pb::Behaviour, city: &str) -> Result<ToolResult, ToolError> {
    use copilot_grpc::IntoToolResult;
    use pb::behaviour::Result as Kind;

    match behaviour.result {
        Some(Kind::Text(text)) => text.into_tool_result(),
        Some(Kind::Template(text)) => text.replace("{city}", city).into_tool_result(),
        Some(Kind::Json(text)) => serde_json::from_str::<serde_json::Value>(&text)?.into_tool_result(),
        Some(Kind::Failure(text)) => Ok(ToolResult::failure(text)),
        Some(Kind::Rejected(text)) => Ok(ToolResult::rejected(text)),
        Some(Kind::Binary(binary)) => Ok(ToolResult::binary(binary.data, binary.mime_type).with_text(binary.text)),
        Some(Kind::Exception(text)) => Err(ToolError::internal(text)),
        Some(Kind::Abstain(_)) => Ok(ToolResult::abstain()),
        // Keys of JSON are texts.
        Some(Kind::Unencodable(_)) => Json(BTreeMap::from([(vec![1], 1)])).into_tool_result(),
        Some(Kind::Nothing(_)) | None => ().into_tool_result(),
    }
}

/// The options of a session that is created, resumed or opened.
pub fn configure(builder: SessionOptions, runner: &Arc<Runner>, step: &pb::Open) -> SessionOptions {
    let mut builder = participate(builder, runner, step);
    if let Some(provider) = &step.provider {
        let config = cli::ProviderConfig {
            provider_type: cli::ProviderConfigType::Openai.into(),
            wire_api: cli::ProviderConfigWireApi::Completions.into(),
            base_url: provider.base_url.clone(),
            api_key: (!provider.token_by_callback).then(|| "offline".to_owned()),
            has_bearer_token_provider: provider.token_by_callback.then_some(true),
            ..Default::default()
        };
        let config = cli::SessionConfig {
            skip_custom_instructions: Some(true),
            provider: Some(config),
            ..Default::default()
        };
        builder = builder.config(config).model(&provider.model).working_directory(&step.working_directory);
    }
    if step.callback_timeout_ms > 0 {
        builder = builder.callback_timeout(Duration::from_millis(step.callback_timeout_ms as u64));
    }
    if step.end_with_last_participant {
        builder = builder.lifetime(Lifetime::EndWithLastParticipant);
    }
    if step.continue_interrupted_turns {
        builder = builder.interrupted_turns(OnInterruption::Continue);
    }
    for (name, value) in &step.labels {
        builder = builder.label(name, value);
    }
    builder = builder.clear(&step.clear);
    match step.streaming {
        Some(streaming) => builder.streaming(streaming),
        None => builder,
    }
}

/// The options of a participant.
pub fn participate<M: Opening>(
    mut builder: SessionOptions<M>,
    runner: &Arc<Runner>,
    step: &pb::Open,
) -> SessionOptions<M> {
    for message in &step.tools {
        builder = builder.tool(tool(runner, &step.session, message.clone()));
    }
    for name in &step.commands {
        let description = "a command".to_owned();
        builder = builder.command(cli::CommandDeclaration { name: name.clone(), description, ..Default::default() });
    }
    if step.grace_ms > 0 {
        builder = builder.grace(Duration::from_millis(step.grace_ms as u64));
    }
    let (listener, session) = (runner.clone(), step.session.clone());
    builder = builder.on_connection(move |change| {
        let name = match change {
            ConnectionChange::Disconnected(_) => "broken",
            ConnectionChange::Reconnected { .. } => "restored",
            ConnectionChange::Expired { .. } => "expired",
            _ => "runtime-restarted",
        };
        listener.observe(&session, "connection", name, "");
    });
    match &step.handlers {
        Some(handlers) => add_handlers(builder, runner, &step.session, handlers.clone()),
        None => builder,
    }
}

/// The result of a callback without a type.
enum Raw {
    Json(serde_json::Value),
    Unencodable,
}

impl Serialize for Raw {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Json(value) => value.serialize(serializer),
            Self::Unencodable => Err(serde::ser::Error::custom("the value cannot be encoded")),
        }
    }
}

/// What a handler needs.
#[derive(Clone)]
struct Context {
    runner: Arc<Runner>,
    session: String,
}

impl Context {
    /// Observes, waits, and returns the text or the error of an answer.
    async fn answer(self, kind: &'static str, name: String, answer: pb::Answer) -> Result<String, HandlerError> {
        self.runner.gate(self.runner.observe(&self.session, kind, &name, ""), &answer.gate).await;
        if answer.exception { Err(HandlerError::internal(answer.text)) } else { Ok(answer.text) }
    }
}

fn add_handlers<M: Opening>(
    mut b: SessionOptions<M>,
    runner: &Arc<Runner>,
    session: &str,
    h: pb::Handlers,
) -> SessionOptions<M> {
    let c = Context { runner: runner.clone(), session: session.to_owned() };
    if let Some(permission) = h.permission {
        let c = c.clone();
        b = b.on_permission(move |request| decide(c.clone(), permission.clone(), request));
    }
    if let Some(a) = h.user_input {
        let c = c.clone();
        b = b.on_user_input(move |request| c.clone().answer("user_input", request.question, a.clone()));
    }
    if let Some(elicitation) = h.elicitation {
        let c = c.clone();
        b = b.on_elicitation(move |request| {
            c.runner.observe(&c.session, "elicitation", &request.message, "");
            let elicitation = elicitation.clone();
            async move {
                if elicitation.unencodable {
                    return Err(HandlerError::internal("every form can be encoded"));
                }
                Ok::<_, HandlerError>(elicited(elicitation))
            }
        });
    }
    if let Some(plan) = h.exit_plan_mode {
        let c = c.clone();
        b = b.on_exit_plan_mode(move |request| {
            c.runner.observe(&c.session, "exit_plan_mode", &request.summary, "");
            async move { plan.approved }
        });
    }
    if let Some(a) = h.auto_mode_switch {
        let c = c.clone();
        b = b.on_auto_mode_switch(move |_| {
            let answer = c.clone().answer("auto_mode_switch", String::new(), a.clone());
            async move {
                use cli::CallbackAutoModeSwitchServiceRequestResponseResponse as Response;
                let response = match answer.await?.as_str() {
                    "yes" => Response::Yes,
                    "yes-always" => Response::YesAlways,
                    _ => Response::No,
                };
                let response = response.into();
                Ok::<_, HandlerError>(cli::CallbackAutoModeSwitchServiceRequestResponse { response, ..Default::default() })
            }
        });
    }
    if let Some(a) = h.command {
        let c = c.clone();
        b = b.on_command(move |request| {
            let answer = c.clone().answer("command", request.command_name, a.clone());
            async move { answer.await.map(|_| ()) }
        });
    }
    if let Some(a) = h.provider_token {
        let c = c.clone();
        b = b.on_provider_token(move |_| c.clone().answer("provider_token", String::new(), a.clone()));
    }
    if let Some(a) = h.github_token {
        let c = c.clone();
        b = b.on_github_token(move |_| {
            let answer = c.clone().answer("github_token", String::new(), a.clone());
            async move {
                let (token, expires_in) = (answer.await?, Duration::from_secs(3600));
                Ok::<_, HandlerError>(GitHubToken { token, expires_in })
            }
        });
    }
    if let Some(a) = h.pre_tool_use {
        let c = c.clone();
        b = b.on_pre_tool_use(move |request| {
            let unencodable = a.unencodable;
            let answer = c.clone().answer("hook", format!("preToolUse {}", request.tool_name), a.clone());
            async move {
                if unencodable {
                    answer.await?;
                    return Err(HandlerError::internal("every output can be encoded"));
                }
                let decision = match answer.await?.as_str() {
                    "allow" => cli::HookPermissionDecision::Allow,
                    "deny" => cli::HookPermissionDecision::Deny,
                    _ => return Ok::<_, HandlerError>(None),
                };
                let permission_decision = decision.into();
                Ok(Some(cli::HookPreToolUseOutput { permission_decision, ..Default::default() }))
            }
        });
    }
    if h.post_tool_use {
        let c = c.clone();
        b = b.on_post_tool_use(move |request| {
            c.runner.observe(&c.session, "hook", &format!("postToolUse {}", request.tool_name), "");
            async {}
        });
    }
    if h.user_prompt_submitted {
        let c = c.clone();
        b = b.on_user_prompt_submitted(move |request| {
            c.runner.observe(&c.session, "hook", &format!("userPromptSubmitted {}", request.prompt), "");
            async {}
        });
    }
    if let Some(raw) = h.raw {
        b = b.on_request(raw.method, move |request: RawRequest| {
            c.runner.observe(&c.session, "raw", &request.method, &request.params.to_string());
            let result = serde_json::from_str::<serde_json::Value>(&raw.result_json);
            let unencodable = raw.unencodable;
            async move {
                if unencodable { Ok(Raw::Unencodable) } else { result.map(Raw::Json).map_err(HandlerError::internal) }
            }
        });
    }
    b
}

fn elicited(elicitation: pb::Elicitation) -> cli::UiElicitationResponse {
    use copilot_grpc::kind::Elicitation;
    use copilot_grpc::Reply;

    let action = match elicitation.action.as_str() {
        "accept" => {
            let form = elicitation.content.into_iter().fold(Form::new(), |form, (name, text)| form.field(name, text));
            let answer = Reply::<Elicitation>::reply(form, &());
            return answer.ok().flatten().unwrap_or_default();
        }
        "decline" => cli::UiElicitationResponseAction::Decline,
        _ => cli::UiElicitationResponseAction::Cancel,
    };
    cli::UiElicitationResponse { action: action.into(), ..Default::default() }
}

async fn decide(c: Context, p: pb::Permission, request: PermissionRequest) -> Result<Decision, HandlerError> {
    c.runner.gate(c.runner.observe(&c.session, "permission", &request.kind, ""), &p.gate).await;
    let rule = p.rules.into_iter().find(|rule| rule.kind.is_empty() || rule.kind == request.kind).unwrap_or_default();
    match rule.decision.as_str() {
        "approve" => Ok(request.approve()),
        "approve-for-session" => Ok(request.approve_for_session()),
        "reject" => Ok(request.reject(rule.feedback)),
        "exception" => Err(HandlerError::internal(rule.feedback)),
        _ => Ok(request.abstain()),
    }
}
