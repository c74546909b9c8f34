//! Results of tools.

use std::fmt;

use serde::Serialize;
use serde_json::Value;

use crate::bridge::v1 as bridge;
use crate::bridge::v1::tool_answer::Outcome;
use crate::cli::v1 as cli;

type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// A result of a tool. Text, `()` for "Done.", JSON values and [`Json`] convert into one.
#[derive(Clone, Debug, Default)]
pub struct ToolResult {
    pub(crate) message: cli::ExternalToolTextResultForLlm,
    is_text: bool,
    abstains: bool,
}

impl ToolResult {
    /// The tool succeeded with this text for the model.
    pub fn text(text: impl Into<String>) -> Self {
        Self { is_text: true, ..Self::of_type("success", text.into()) }
    }

    /// The tool failed; the model reads the text.
    pub fn failure(text: impl Into<String>) -> Self {
        let text = text.into();
        let mut result = Self::of_type("failure", text.clone());
        result.message.error = Some(text);
        result
    }

    /// The call was refused; the model reads the text.
    pub fn rejected(text: impl Into<String>) -> Self {
        Self::of_type("rejected", text.into())
    }

    /// The call is not permitted; the model reads the text.
    pub fn denied(text: impl Into<String>) -> Self {
        Self::of_type("denied", text.into())
    }

    /// An image or another file; [`with_text`](Self::with_text) adds a text for the model.
    pub fn binary(data: impl Into<Vec<u8>>, mime_type: impl Into<String>) -> Self {
        Self::of_type("success", String::new()).with_binary(data, mime_type)
    }

    /// Leaves the call to other participants.
    pub fn abstain() -> Self {
        Self { abstains: true, ..Self::default() }
    }

    /// Sets the text for the model.
    pub fn with_text(mut self, text: impl Into<String>) -> Self {
        self.message.text_result_for_llm = text.into();
        self
    }

    /// Adds an image or another file.
    pub fn with_binary(mut self, data: impl Into<Vec<u8>>, mime_type: impl Into<String>) -> Self {
        use cli::ExternalToolTextResultForLlmBinaryResultsForLlmType as Kind;

        let mime_type = mime_type.into();
        let kind = if mime_type.starts_with("image/") { Kind::Image } else { Kind::Resource };
        self.message.binary_results_for_llm.push(cli::ExternalToolTextResultForLlmBinaryResultsForLlm {
            binary_type: kind.into(),
            data: data.into(),
            mime_type,
            ..Default::default()
        });
        self.is_text = false;
        self
    }

    /// Adds a text to the session's log.
    pub fn with_session_log(mut self, text: impl Into<String>) -> Self {
        (self.message.session_log, self.is_text) = (Some(text.into()), false);
        self
    }

    fn of_type(result_type: &str, text: String) -> Self {
        let message = cli::ExternalToolTextResultForLlm {
            text_result_for_llm: text,
            result_type: Some(result_type.to_owned()),
            ..Default::default()
        };
        Self { message, is_text: false, abstains: false }
    }

    /// The answer; none abstains.
    pub(crate) fn answer(self) -> Option<bridge::ToolAnswer> {
        let outcome = match self {
            Self { abstains: true, .. } => return None,
            Self { is_text: true, message, .. } => Outcome::Text(message.text_result_for_llm),
            Self { message, .. } => Outcome::Result(message),
        };
        Some(bridge::ToolAnswer { outcome: Some(outcome) })
    }
}

impl From<cli::ExternalToolTextResultForLlm> for ToolResult {
    fn from(message: cli::ExternalToolTextResultForLlm) -> Self {
        Self { message, is_text: false, abstains: false }
    }
}

/// A result of a tool as JSON.
///
/// ```
/// # use copilot_grpc::Json;
/// #[derive(serde::Serialize)]
/// struct Forecast { sky: &'static str, celsius: i32 }
///
/// async fn forecast() -> Json<Forecast> {
///     Json(Forecast { sky: "rain", celsius: 12 })
/// }
/// ```
#[derive(Clone, Debug)]
pub struct Json<T>(pub T);

/// The outcome of a tool's function: a result, or an error for the model or for the log.
pub trait IntoToolResult {
    /// Converts the outcome.
    fn into_tool_result(self) -> std::result::Result<ToolResult, ToolError>;
}

impl IntoToolResult for ToolResult {
    fn into_tool_result(self) -> std::result::Result<ToolResult, ToolError> {
        Ok(self)
    }
}

impl IntoToolResult for cli::ExternalToolTextResultForLlm {
    fn into_tool_result(self) -> std::result::Result<ToolResult, ToolError> {
        Ok(self.into())
    }
}

impl IntoToolResult for String {
    fn into_tool_result(self) -> std::result::Result<ToolResult, ToolError> {
        Ok(ToolResult::text(self))
    }
}

impl IntoToolResult for &str {
    fn into_tool_result(self) -> std::result::Result<ToolResult, ToolError> {
        Ok(ToolResult::text(self))
    }
}

impl IntoToolResult for () {
    fn into_tool_result(self) -> std::result::Result<ToolResult, ToolError> {
        Ok(ToolResult::text("Done."))
    }
}

impl IntoToolResult for Value {
    fn into_tool_result(self) -> std::result::Result<ToolResult, ToolError> {
        Ok(ToolResult::text(self.to_string()))
    }
}

impl<T: Serialize> IntoToolResult for Json<T> {
    fn into_tool_result(self) -> std::result::Result<ToolResult, ToolError> {
        let json = serde_json::to_string(&self.0).map_err(|error| ToolError {
            text: error.to_string(),
            shown: Some("The tool ran, but its result cannot be encoded as JSON.".to_owned()),
        })?;
        Ok(ToolResult::text(json))
    }
}

impl<T: IntoToolResult, E: Into<ToolError>> IntoToolResult for std::result::Result<T, E> {
    fn into_tool_result(self) -> std::result::Result<ToolResult, ToolError> {
        self.map_err(Into::into)?.into_tool_result()
    }
}

/// The failure of a tool.
///
/// The model reads the text of [`ToolError::new`]. Of any other error, which `?` converts, the model reads `The tool
/// failed.`; the text goes to the program's log and to the session's record.
#[derive(Debug)]
pub struct ToolError {
    pub(crate) text: String,
    /// What the model reads of it.
    pub(crate) shown: Option<String>,
}

impl ToolError {
    /// Fails with a text that the model reads.
    pub fn new(text: impl Into<String>) -> Self {
        let text = text.into();
        Self { shown: Some(text.clone()), text }
    }

    /// Fails without details for the model.
    pub fn internal(cause: impl Into<BoxError>) -> Self {
        Self { text: cause.into().to_string(), shown: None }
    }
}

impl fmt::Display for ToolError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl<E: std::error::Error + Send + Sync + 'static> From<E> for ToolError {
    fn from(error: E) -> Self {
        Self::internal(error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[tokio::test]
    async fn results() {
        let outcome = |result: std::result::Result<ToolResult, ToolError>| result.unwrap().answer().unwrap().outcome;
        let text = |text: &str| Some(Outcome::Text(text.into()));
        assert_eq!(outcome("rain".into_tool_result()), text("rain"));
        assert_eq!(outcome(().into_tool_result()), text("Done."));
        assert_eq!(outcome(json!({"sky": "grey"}).into_tool_result()), text(r#"{"sky":"grey"}"#));
        assert_eq!(outcome(Json(vec![1, 2]).into_tool_result()), text("[1,2]"));
        let Some(Outcome::Result(image)) = outcome(ToolResult::binary([1], "image/png").into_tool_result()) else {
            panic!("no complete result");
        };
        assert_eq!(image.binary_results_for_llm[0].binary_type, 1);
        let Some(Outcome::Result(denied)) = outcome(ToolResult::denied("not allowed").into_tool_result()) else {
            panic!("no complete result");
        };
        assert_eq!((denied.result_type.as_deref(), &*denied.text_result_for_llm), (Some("denied"), "not allowed"));
        assert!(ToolResult::abstain().answer().is_none());
        let hidden = Err::<(), _>(std::io::Error::other("/secret")).into_tool_result().unwrap_err();
        assert!(hidden.shown.is_none() && hidden.text == "/secret");
        let shown = Err::<(), _>(ToolError::new("closed")).into_tool_result().unwrap_err();
        assert_eq!(shown.shown.as_deref(), Some("closed"));
        let unencodable = Json(std::collections::BTreeMap::from([(vec![1], 1)])).into_tool_result().unwrap_err();
        assert_eq!(unencodable.shown.as_deref(), Some("The tool ran, but its result cannot be encoded as JSON."));
    }
}
