//! Tools: functions of this program that the agent can call.

use std::borrow::Cow;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::cli::v1 as cli;
use crate::error::{Error, Reason, Result};
use crate::tool_result::{IntoToolResult, ToolError, ToolResult};

/// Calls a function with the arguments as JSON text.
type Run = dyn Fn(ToolCall, &str) -> Pin<Box<dyn Future<Output = std::result::Result<ToolResult, ToolError>> + Send>>
    + Send
    + Sync;

/// The call that a tool executes.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct ToolCall {
    /// The session.
    pub session_id: String,
    /// Id of the callback, as in [`Session::resolve`](crate::Session::resolve).
    pub callback_id: String,
    /// The model's id of the call.
    pub tool_call_id: String,
    /// The tool.
    pub tool_name: String,
    /// The session's directory on the CLI's machine; empty if unknown.
    pub working_directory: String,
    /// W3C trace context of the call; empty if there is none.
    pub traceparent: String,
    /// W3C trace state of the same context.
    pub tracestate: String,
}

/// The arguments of a tool without parameters.
#[derive(Clone, Copy, Debug, Default, Deserialize, JsonSchema)]
pub struct NoArguments {}

/// A function that the agent can call.
#[derive(Clone)]
pub struct Tool {
    definition: cli::ToolDefinition,
    owned_by_session: bool,
    run: Option<Arc<Run>>,
    problem: Option<Error>,
}

impl Tool {
    /// A tool with typed arguments. Their JSON Schema follows from the type; doc comments describe the fields.
    ///
    /// Arguments that do not fit the type are refused in words that the model can read, without calling the function.
    /// Calls run as tasks: up to 16 of a participant at once, unless it sets another number. A function must not block
    /// its thread: use `tokio::task::spawn_blocking`. A panic counts as a failure.
    ///
    /// ```
    /// use copilot_grpc::{Tool, ToolError};
    ///
    /// #[derive(serde::Deserialize, schemars::JsonSchema)]
    /// struct Weather {
    ///     /// The city's English name.
    ///     city: String,
    /// }
    ///
    /// let tool = Tool::new("get_weather", "Tells the weather in a city.", |args: Weather| async move {
    ///     match args.city.as_str() {
    ///         "Paris" => Ok("rain"),
    ///         city => Err(ToolError::new(format!("There is no forecast for {city}."))),
    ///     }
    /// });
    /// ```
    pub fn new<A, F, Fut>(name: impl Into<String>, description: impl Into<String>, function: F) -> Self
    where
        A: DeserializeOwned + JsonSchema + Send + 'static,
        F: Fn(A) -> Fut + Send + Sync + 'static,
        Fut: Future<Output: IntoToolResult> + Send + 'static,
    {
        Self::with_call(name, description, move |_, arguments| function(arguments))
    }

    /// As [`Tool::new`], for a function that also receives the call's ids.
    pub fn with_call<A, F, Fut>(name: impl Into<String>, description: impl Into<String>, function: F) -> Self
    where
        A: DeserializeOwned + JsonSchema + Send + 'static,
        F: Fn(ToolCall, A) -> Fut + Send + Sync + 'static,
        Fut: Future<Output: IntoToolResult> + Send + 'static,
    {
        let run: Arc<Run> = Arc::new(move |call, json| {
            let arguments = match arguments_of::<A>(json) {
                Ok(arguments) => arguments,
                Err(mismatch) => return Box::pin(std::future::ready(Ok(ToolResult::failure(mismatch)))),
            };
            let result = function(call, arguments);
            Box::pin(async move { result.await.into_tool_result() })
        });
        Self { run: Some(run), ..Self::declared(name, description, schema_of::<A>()) }
    }

    /// A tool with a JSON Schema of its arguments. The function receives them as the model gave them.
    pub fn raw<F, Fut>(name: impl Into<String>, description: impl Into<String>, schema: Value, function: F) -> Self
    where
        F: Fn(ToolCall, Value) -> Fut + Send + Sync + 'static,
        Fut: Future<Output: IntoToolResult> + Send + 'static,
    {
        let run: Arc<Run> = Arc::new(move |call, json| {
            let arguments = match value_of(json) {
                Ok(arguments) => arguments,
                Err(mismatch) => return Box::pin(std::future::ready(Ok(ToolResult::failure(mismatch)))),
            };
            let result = function(call, arguments);
            Box::pin(async move { result.await.into_tool_result() })
        });
        Self { run: Some(run), ..Self::declared(name, description, schema) }
    }

    /// A tool whose calls are answered with [`Session::resolve`](crate::Session::resolve).
    pub fn declared(name: impl Into<String>, description: impl Into<String>, schema: Value) -> Self {
        let name = name.into();
        let definition = cli::ToolDefinition {
            description: description.into(),
            parameters_json: Some(schema.to_string()),
            name: name.clone(),
            ..Default::default()
        };
        Self { definition, owned_by_session: false, run: None, problem: problem_of(&name, &schema) }
    }

    /// Lets the agent call the tool without a permission request.
    pub fn skip_permission(mut self) -> Self {
        self.definition.skip_permission = Some(true);
        self
    }

    /// Replaces a built-in tool of the same name.
    pub fn overrides_built_in(mut self) -> Self {
        self.definition.overrides_built_in_tool = Some(true);
        self
    }

    /// Leaves the tool with the session when the participant leaves.
    pub fn owned_by_session(mut self) -> Self {
        self.owned_by_session = true;
        self
    }

    /// Changes further fields of the definition.
    pub fn definition(mut self, change: impl FnOnce(&mut cli::ToolDefinition)) -> Self {
        change(&mut self.definition);
        self
    }

    /// The name for the agent.
    pub fn name(&self) -> &str {
        &self.definition.name
    }

    pub(crate) fn message(&self) -> cli::ToolDefinition {
        self.definition.clone()
    }

    pub(crate) fn is_owned_by_session(&self) -> bool {
        self.owned_by_session
    }

    pub(crate) fn has_function(&self) -> bool {
        self.run.is_some()
    }

    /// The reason why the agent cannot have the tool.
    pub(crate) fn problem(&self) -> Option<Error> {
        self.problem.clone()
    }

    /// Calls the function with the arguments as JSON text.
    pub(crate) async fn call(&self, call: ToolCall, json: &str) -> std::result::Result<ToolResult, ToolError> {
        let Some(run) = &self.run else { return Ok(ToolResult::abstain()) };
        run(call, if json.is_empty() { "{}" } else { json }).await
    }
}

impl fmt::Debug for Tool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Tool({})", self.definition.name)
    }
}

fn value_of(json: &str) -> std::result::Result<Value, String> {
    serde_json::from_str(json).map_err(|error| format!("The arguments do not fit: they are not valid JSON: {error}."))
}

/// Reads arguments. A mismatch is a text for the model.
fn arguments_of<A: DeserializeOwned>(json: &str) -> std::result::Result<A, String> {
    if let Ok(arguments) = serde_json::from_str(json) {
        return Ok(arguments);
    }
    // Again, to say where the problem is.
    serde_path_to_error::deserialize(value_of(json)?).map_err(|error| {
        let at = match error.path().to_string() {
            path if path == "." => Cow::Borrowed(""),
            path => Cow::Owned(format!("{path}: ")),
        };
        format!("The arguments do not fit: {at}{}.", error.inner())
    })
}

/// The JSON Schema of a type, without parts that models do not need.
fn schema_of<A: JsonSchema>() -> Value {
    let settings = SchemaSettings::draft07().with(|settings| {
        settings.meta_schema = None;
        settings.inline_subschemas = true;
    });
    let mut schema = settings.into_generator().into_root_schema_for::<A>().to_value();
    if let Some(object) = schema.as_object_mut() {
        object.remove("title");
        object.remove("description"); // the tool has its own
        object.entry("properties").or_insert_with(|| Value::Object(Default::default()));
    }
    schema
}

fn problem_of(name: &str, schema: &Value) -> Option<Error> {
    let is_valid = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    if name.is_empty() || !name.chars().all(is_valid) {
        let text = format!("tool name {name:?} does not match ^[a-zA-Z0-9_-]+$");
        return Some(Error::new(Reason::ToolNameInvalid, text));
    }
    let is_object = schema.get("type").is_some_and(|kind| kind == "object");
    (!is_object).then(|| Error::invalid("tools", format!("tool {name:?}: the arguments must be a JSON object")))
}

/// Fails for tools that the agent cannot have, and for two of the same name.
pub(crate) fn check(tools: &[Tool]) -> Result<()> {
    let mut names = std::collections::HashSet::new();
    for tool in tools {
        if let Some(problem) = tool.problem() {
            return Err(problem);
        }
        if !names.insert(tool.name()) {
            return Err(Error::new(Reason::ToolNameConflict, format!("two tools have the name {:?}", tool.name())));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[derive(Deserialize, JsonSchema)]
    #[serde(rename_all = "lowercase")]
    enum Unit {
        Celsius,
        Fahrenheit,
    }

    #[derive(Deserialize, JsonSchema)]
    struct Place {
        /// The city's English name.
        city: String,
        country: Option<String>,
    }

    #[derive(Deserialize, JsonSchema)]
    struct Forecast {
        place: Place,
        /// 1 to 10.
        days: u8,
        #[serde(default)]
        units: Vec<Unit>,
    }

    #[test]
    fn schemas() {
        let place = json!({
            "type": "object",
            "properties": {
                "city": {"type": "string", "description": "The city's English name."},
                "country": {"type": ["string", "null"]},
            },
            "required": ["city"],
        });
        assert_eq!(schema_of::<Place>(), place);
        let forecast = schema_of::<Forecast>();
        assert_eq!(forecast["properties"]["place"], place);
        assert_eq!(forecast["properties"]["days"]["description"], "1 to 10.");
        assert_eq!(forecast["properties"]["units"]["items"]["enum"], json!(["celsius", "fahrenheit"]));
        assert_eq!(forecast["required"], json!(["place", "days"]));
        assert_eq!(schema_of::<NoArguments>(), json!({"type": "object", "properties": {}}));
    }

    #[test]
    fn mismatches_name_the_place_and_the_problem() {
        for (arguments, want) in [
            (json!({"place": {"city": "Paris"}}), "missing field `days`"),
            (json!({"place": {}, "days": 1}), "place: missing field `city`"),
            (json!({"place": {"city": 7}, "days": 1}), "place.city: invalid type: integer `7`, expected a string"),
            (json!({"place": {"city": "Paris"}, "days": 300}), "days: invalid value: integer `300`, expected u8"),
            (json!({"place": {"city": "Paris"}, "days": 1, "units": ["kelvin"]}), "units[0]: unknown variant `kelvin`"),
            (json!([]), "invalid length 0"),
        ] {
            let error = arguments_of::<Forecast>(&arguments.to_string()).map(|_| ()).unwrap_err();
            let text = format!("The arguments do not fit: {want}");
            assert!(error.starts_with(&text), "{arguments}: {error}");
        }
        let good = json!({"place": {"city": "Paris"}, "days": 3, "units": ["celsius", "fahrenheit"]});
        let good = arguments_of::<Forecast>(&good.to_string()).unwrap();
        assert!(matches!(good.units[..], [Unit::Celsius, Unit::Fahrenheit]) && good.days == 3);
        assert_eq!((good.place.city.as_str(), good.place.country), ("Paris", None));
    }

    #[tokio::test]
    async fn calls() {
        let tool = Tool::new("f", "", |place: Place| async move { place.city });
        let call = |json: &'static str| tool.call(ToolCall::default(), json);
        for (json, want) in [
            (r#"{"city":"Rome"}"#, "Rome"),
            ("{", "The arguments do not fit: they are not valid JSON"),
            ("", "The arguments do not fit: missing field `city`."),
        ] {
            let text = call(json).await.unwrap().message.text_result_for_llm;
            assert!(text.starts_with(want), "{json}: {text}");
        }
    }

    #[test]
    fn tools_that_the_agent_cannot_have() {
        let tool = |name: &str| Tool::new(name, "", |_: NoArguments| async {});
        assert!(check(&[tool("a"), tool("b-2_C")]).is_ok());
        assert_eq!(check(&[tool("a"), tool("a")]).unwrap_err().reason(), Reason::ToolNameConflict);
        for bad in ["", "a b", "é"] {
            assert_eq!(check(&[tool(bad)]).unwrap_err().reason(), Reason::ToolNameInvalid, "{bad:?}");
        }
        let list = Tool::new("list", "", |_: Vec<String>| async {});
        assert_eq!(check(&[list]).unwrap_err().reason(), Reason::InvalidField);
    }
}
