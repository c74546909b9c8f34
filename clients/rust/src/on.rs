//! Handlers of callbacks.

use std::future::Future;

use crate::handlers::Reply;
use crate::kind;
use crate::open::{Opening, SessionOptions};

/// Declares a method for each kind of handler.
macro_rules! handlers {
    ($($(#[$doc:meta])* $method:ident: $kind:ident;)*) => {
        /// Handlers of callbacks.
        impl<M: Opening> SessionOptions<M> {
            $(
                $(#[$doc])*
                pub fn $method<F, Fut>(mut self, handler: F) -> Self
                where
                    F: Fn(<kind::$kind as kind::Kind>::Request) -> Fut + Send + Sync + 'static,
                    Fut: Future<Output: Reply<kind::$kind>> + Send + 'static,
                {
                    self.handlers.on::<kind::$kind, _, _>(handler);
                    self
                }
            )*
        }
    };
}

handlers! {
    /// Answers the agent's questions. Short form: the text.
    on_user_input: UserInput;
    /// Fills in forms. Short forms: a [`Form`](crate::Form) to accept, `()` to decline, or an `Option` of a form.
    on_elicitation: Elicitation;
    /// Decides about plans. Short forms: true for the recommended action, false, or feedback for the agent.
    on_exit_plan_mode: ExitPlanMode;
    /// Decides whether another model is used when a rate limit is reached. Short form: a boolean, for this time.
    on_auto_mode_switch: AutoModeSwitch;
    /// Receives the hooks that have no handler of their own. Short form: `()` for no effect.
    on_hook: Hook;
    /// Changes sections of the system message. Short form: the new texts of sections, by name.
    on_system_message_transform: SystemMessageTransform;
    /// Executes slash commands. `()` is success; a [`HandlerError`](crate::HandlerError) is the command's error.
    on_command: Command;
    /// Decides about queued commands. Short form: whether the command was handled.
    on_queued_command: QueuedCommand;
    /// Answers MCP's sampling/createMessage. Short forms: its result as JSON, or `None` to refuse.
    on_sampling: Sampling;
    /// Supplies an MCP server's token. Short forms: the token, or `None`.
    on_mcp_oauth: McpOauth;
    /// Supplies an MCP server's headers. Short forms: the headers, or `None`.
    on_mcp_headers: McpHeaders;
    /// Decides about the session's limits.
    on_session_limits: SessionLimits;
    /// Supplies a model provider's bearer token before each request. Short form: the token.
    on_provider_token: ProviderToken;
    /// Supplies GitHub tokens. `None` refuses: the session is not created, or the turn fails.
    on_github_token: GithubToken;
    /// Opens a canvas.
    on_canvas_open: CanvasOpen;
    /// Closes a canvas. Short form: `()`.
    on_canvas_close: CanvasClose;
    /// Executes an action of a canvas.
    on_canvas_action: CanvasAction;
    /// Lists skills.
    on_skill_list: SkillList;
    /// Reads a skill.
    on_skill_read: SkillRead;
    /// Runs a workflow.
    on_workflow_execute: WorkflowExecute;
    /// Ends a workflow. Short form: `()`.
    on_workflow_abort: WorkflowAbort;
    /// Runs an agent factory.
    on_factory_execute: FactoryExecute;
    /// Ends an agent factory. Short form: `()`.
    on_factory_abort: FactoryAbort;
    /// Cancels a task.
    on_task_cancel: TaskCancel;
    /// Decides about an installation.
    on_installation_confirm: InstallationConfirm;
    /// Supplies the command that starts an extension.
    on_extension_launch: ExtensionLaunch;
    /// Runs a function on the user-interface thread. Short form: `()`.
    on_ui_thread: UiThread;
    /// Runs a statement on the session's database, with [`session_files`](Self::session_files).
    on_fs_sqlite_query: FsSqliteQuery;
    /// Runs several statements in a transaction, with [`session_files`](Self::session_files).
    on_fs_sqlite_transaction: FsSqliteTransaction;
    /// Tells whether a database exists, with [`session_files`](Self::session_files).
    on_fs_sqlite_exists: FsSqliteExists;
    /// Before a tool runs: allow, deny, ask, or change its arguments. A failing handler denies the tool.
    ///
    /// If several participants have a hook, each receives the changes of the previous one, and a refusal ends the chain.
    /// Short forms of all hooks: `()` or `None` for no effect.
    on_pre_tool_use: PreToolUse;
    /// Before a tool of an MCP server is called: changes the call's metadata.
    on_pre_mcp_tool_call: PreMcpToolCall;
    /// After a tool has succeeded: changes its result.
    on_post_tool_use: PostToolUse;
    /// After a tool has failed: adds text for the model.
    on_post_tool_use_failure: PostToolUseFailure;
    /// When a prompt arrives: changes it.
    on_user_prompt_submitted: UserPromptSubmitted;
    /// When a prompt has the form that the model receives: changes that form.
    on_user_prompt_transformed: UserPromptTransformed;
    /// When the session starts: adds text for the model.
    on_session_start: SessionStart;
    /// When the session ends.
    on_session_end: SessionEnd;
    /// When something failed: retry, skip or abort.
    on_error_occurred: ErrorOccurred;
    /// When the agent considers its work done: whether it may stop.
    on_agent_stop: AgentStop;
    /// When a sub-agent starts.
    on_subagent_start: SubagentStart;
    /// When a sub-agent stops.
    on_subagent_stop: SubagentStop;
}
