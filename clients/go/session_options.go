package copilot

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/fieldmaskpb"

	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
	cliv1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/cli/v1"
)

// SessionOptions is how a session is created, resumed, opened or joined, and what this program
// does in it. The zero value is a session with the CLI's own defaults in which every
// permission is denied. The same options serve all of them: what only a new session can have
// is ignored when a session is resumed, and what only a resume takes when it is created.
// Joining takes the options of the participant, from Tools on, and refuses the others.
type SessionOptions struct {
	// New sessions only: the id to give it; letters, digits, '-' and '_', up to 128. Default: a
	// random UUID. ResumeSession and OpenSession have the id as an argument.
	ID string
	// New sessions only: labels by which ListSessions and other filters find the session; see Session.labels of
	// the API. [Session.UpdateLabels] changes them.
	Labels map[string]string
	// New sessions only: labels that the session's server must have, as in a cluster whose replicas have different
	// directories; see CreateSessionRequest.node_labels of the API.
	NodeLabels map[string]string
	// The model's text arrives in whole messages. Otherwise it arrives as it is generated, which
	// [Turn.Deltas] yields. Streaming in Config wins over it.
	DisableStreaming bool
	// How it works: model, provider, instructions, folders, …. On a resume, what is set
	// changes and the rest stays. Not for joining.
	Config *cliv1.SessionConfig
	// Fields of Config to clear, by their names in the API, such as "mcp_servers": a list or
	// map becomes empty, any other field is removed. An empty list or map in Config changes
	// nothing. Fields with a value in Config are set. When a session is created, it has no
	// value to clear but those that the server gives to new sessions. See
	// ResumeSessionRequest.update_mask of the API. Not for joining.
	Clear []string
	// A model provider of the server's own configuration, by its name, in place of
	// Config.Provider: its secrets are the server's to keep. On a resume, empty is as
	// before. Not for joining.
	ProviderRef string
	// When the session ends; default: LifetimeKeep, on a resume as before. Not for joining.
	Lifetime Lifetime
	// The server's reaction to a turn that ends with its CLI process; default: InterruptionReport. Not for joining.
	InterruptedTurns OnInterruption
	// The callbacks that wait for [Session.Resolve] even while no participant handles
	// them. Not for joining.
	SessionHandlers *bridgev1.Handlers
	// How long callbacks wait for an answer; default: the server's. Not for joining.
	CallbackTimeout time.Duration
	// New sessions only: the repository, for a session that runs in GitHub's cloud.
	Cloud *cliv1.CloudSessionConfig
	// Profile of the session's CLI process, as far as the server allows it. Default: the
	// server's profile; on a resume unchanged. Not for joining.
	RuntimeProfile *bridgev1.RuntimeProfile
	// Resume only: keeps the tool calls and permission requests that were pending when
	// the session was unloaded. This participant answers the ones that it handles.
	ContinuePendingWork bool
	// Resume only: what only a resume takes.
	Resume *cliv1.SessionResumeExtras
	// Makes creating or resuming idempotent even across restarts of this program;
	// default: a random id. Not for joining.
	RequestID string

	// The tools that this participant carries out.
	Tools []Tool
	// Decides about permission requests. Nil: this participant does not handle them;
	// without any handler they are denied.
	OnPermission PermissionHandler
	// Answers the agent's questions. Where no participant does, the agent has no tool to
	// ask with.
	OnUserInput func(context.Context, *UserInputRequest) (*UserInputAnswer, error)
	// Fills in forms of tools and MCP servers.
	OnElicitation func(context.Context, *ElicitationRequest) (*ElicitationAnswer, error)
	// Decides about the plans of an agent in plan mode.
	OnExitPlanMode func(context.Context, *ExitPlanModeRequest) (*ExitPlanModeAnswer, error)
	// Decides whether another model is used when a rate limit is reached.
	OnAutoModeSwitch func(context.Context, *AutoModeSwitchRequest) (*AutoModeSwitchAnswer, error)
	// Carries out the commands that Config.Commands and Commands name. An error ends the
	// command with its text.
	OnCommand func(context.Context, *Command) error
	// Returns a model provider's bearer token, before each model request. Called if the
	// provider has HasBearerTokenProvider set.
	OnProviderToken func(ctx context.Context, provider string) (string, error)
	// Returns a token of a GitHub account: the first when the session is created or
	// resumed, further ones when less than an hour is left. A nil token refuses: the session
	// is not created, or the turn fails. Replaces Config.GithubToken, and needs a session
	// without a provider.
	OnGitHubToken func(context.Context, *GitHubTokenRequest) (*GitHubToken, error)
	// Changes sections of the system message that Config has transformed: returns the new
	// texts by section; the other sections stay.
	OnSystemMessage func(context.Context, *SystemMessageRequest) (map[string]string, error)
	// Executes commands that were queued while the agent worked; returns whether it did.
	OnQueuedCommand func(context.Context, *QueuedCommand) (handled bool, err error)
	// Generates text for MCP servers.
	OnSampling func(context.Context, *SamplingRequest) (*SamplingAnswer, error)
	// Authorizes MCP servers: see [MCPToken].
	OnMCPOAuth func(context.Context, *MCPOAuthRequest) (*MCPOAuthAnswer, error)
	// Returns fresh headers for requests to an MCP server; nil for none.
	OnMCPHeaders func(context.Context, *MCPHeadersRequest) (map[string]string, error)
	// Decides what happens when the session has reached a limit.
	OnSessionLimits func(context.Context, *SessionLimitsRequest) (*SessionLimitsAnswer, error)
	// Show Canvases, close them, and execute their actions.
	OnCanvasOpen func(context.Context, *cliv1.CallbackCanvasServiceOpenRequest) (
		*cliv1.CallbackCanvasServiceOpenResponse, error)
	OnCanvasClose func(context.Context, *cliv1.CallbackCanvasServiceCloseRequest) (
		*cliv1.CallbackCanvasServiceCloseResponse, error)
	OnCanvasAction func(context.Context, *cliv1.CallbackCanvasActionServiceInvokeRequest) (
		*cliv1.CallbackCanvasActionServiceInvokeResponse, error)
	// Lists the skills of this program, and returns the text of one.
	OnSkillList func(context.Context, *SkillListRequest) (*SkillListAnswer, error)
	OnSkillRead func(context.Context, *SkillReadRequest) (*SkillReadAnswer, error)
	// Executes a workflow of this program, and stops an execution.
	OnWorkflowExecute func(context.Context, *WorkflowExecuteRequest) (*WorkflowExecuteAnswer, error)
	OnWorkflowAbort   func(context.Context, *cliv1.CallbackWorkflowServiceAbortRequest) error
	// Replace OnWorkflowExecute and OnWorkflowAbort with CLIs before 1.0.83.
	OnFactoryExecute func(context.Context, *FactoryExecuteRequest) (*FactoryExecuteAnswer, error)
	OnFactoryAbort   func(context.Context, *FactoryAbortRequest) error
	// Cancels a task of this program; returns whether it did.
	OnTaskCancel func(context.Context, *cliv1.CallbackTasksServiceCancelRequest) (cancelled bool, err error)
	// Decides whether something is installed.
	OnInstallationConfirm func(context.Context, *InstallationConfirmRequest) (*InstallationConfirmAnswer, error)
	// Returns how an extension is started.
	OnExtensionLaunch func(context.Context, *ExtensionLaunchRequest) (*ExtensionLaunchAnswer, error)
	// Runs an action on the thread of this program's user interface.
	OnUIThread func(context.Context, *cliv1.CallbackUiThreadServiceRunRequest) error
	// The hooks.
	OnHooks Hooks
	// Keeps the session's files in this program. It sets RuntimeProfile.SessionFs, which
	// the server's policy must allow.
	SessionFS *SessionFS
	// Makes the session's model requests in this program: [http.DefaultTransport], or
	// another transport. It sets RuntimeProfile.ModelInference.
	ModelTransport http.RoundTripper
	// Answers callbacks with the messages of the API: see [Handle].
	Handlers []Handler
	// Answers callbacks without a type, by JSON-RPC method or event type.
	OnRequest map[string]RequestHandler
	// Slash commands that only this participant executes, with OnCommand; removed when it
	// leaves. Commands in Config belong to the session.
	Commands []*cliv1.CommandDeclaration
	// The canvases that this participant can show, and answers for by OnCanvasOpen and so on. They need a
	// CLI process of several connections, which a session that is created so gets.
	Canvases []*cliv1.CanvasDeclaration
	// Identity of this participant as a canvas provider. Its canvases keep their identity
	// across reconnections.
	CanvasProvider *cliv1.CanvasProviderIdentity
	// Identity of this participant, if it is an extension.
	ExtensionInfo *cliv1.ExtensionIdentity
	// The participant's name, for people and logs; default: that of [WithName].
	Name string
	// How long the server keeps the participant's place when its connection breaks, up
	// to an hour; default: the server's 30 s.
	Grace time.Duration
	// How many tool calls run at once; default 16. Further ones wait.
	MaxConcurrentTools int
	// Receives changes of the participant's connection, one at a time. Nothing waits for it.
	OnConnection func(ConnectionChange)
}

const defaultConcurrentTools = 16

func (o *SessionOptions) maxConcurrentTools() int {
	if o.MaxConcurrentTools > 0 {
		return o.MaxConcurrentTools
	}
	return defaultConcurrentTools
}

// runtimeProfile is the profile with what this participant provides.
func (o *SessionOptions) runtimeProfile() *bridgev1.RuntimeProfile {
	if o.SessionFS == nil && o.ModelTransport == nil {
		return o.RuntimeProfile
	}
	p := &bridgev1.RuntimeProfile{}
	if o.RuntimeProfile != nil {
		p = proto.CloneOf(o.RuntimeProfile)
	}
	if o.SessionFS != nil && p.SessionFs == nil {
		p.SessionFs = o.SessionFS.message()
	}
	if o.ModelTransport != nil && p.ModelInference == nil {
		p.ModelInference = &bridgev1.ModelInference{}
	}
	return p
}

func (o *SessionOptions) requestID() string {
	if o.RequestID != "" {
		return o.RequestID
	}
	return newRequestID()
}

func (o *SessionOptions) callbackTimeout() *durationpb.Duration {
	if o.CallbackTimeout > 0 {
		return durationpb.New(o.CallbackTimeout)
	}
	return nil
}

func (o *SessionOptions) updateMask() *fieldmaskpb.FieldMask {
	if len(o.Clear) == 0 {
		return nil
	}
	return &fieldmaskpb.FieldMask{Paths: o.Clear}
}

// config is the session's configuration with the tools that it is to own, and with streaming unless it has a say.
func (o *SessionOptions) config(tools map[string]Tool) *cliv1.SessionConfig {
	config := &cliv1.SessionConfig{}
	if o.Config != nil {
		config = proto.CloneOf(o.Config)
	}
	config.Tools = append(config.Tools, definitions(tools, true)...)
	if config.Streaming == nil && !slices.Contains(o.Clear, "streaming") {
		config.Streaming = proto.Bool(!o.DisableStreaming)
	}
	return config
}

// ending is the lifetime, and the reaction to interrupted turns, as values of the API.
func (o *SessionOptions) ending() (lifetime bridgev1.Lifetime, interrupted bridgev1.OnInterruption, err error) {
	if lifetime, err = valueOf[bridgev1.Lifetime](o.Lifetime); err != nil {
		return 0, 0, err
	}
	interrupted, err = valueOf[bridgev1.OnInterruption](o.InterruptedTurns)
	return lifetime, interrupted, err
}

func (o *SessionOptions) createStart(tools map[string]Tool) (*bridgev1.AttachStart, error) {
	lifetime, interrupted, err := o.ending()
	if err != nil {
		return nil, err
	}
	return &bridgev1.AttachStart{Session: &bridgev1.AttachStart_Create{Create: &bridgev1.CreateSessionRequest{
		RequestId:       o.requestID(),
		SessionId:       o.ID,
		Config:          o.config(tools),
		ProviderRef:     o.ProviderRef,
		Lifetime:        lifetime,
		Handlers:        o.SessionHandlers,
		CallbackTimeout: o.callbackTimeout(),
		Cloud:           o.Cloud,
		RuntimeProfile:  o.runtimeProfile(),
		Labels:          o.Labels,
		NodeLabels:      o.NodeLabels,
		OnInterruption:  interrupted,
		UpdateMask:      o.updateMask(),
	}}}, nil
}

func (o *SessionOptions) resumeStart(id string, tools map[string]Tool) (*bridgev1.AttachStart, error) {
	if o.ID != "" && o.ID != id {
		return nil, fmt.Errorf("copilot: the options have the id %q, and the session to resume is %q", o.ID, id)
	}
	lifetime, interrupted, err := o.ending()
	if err != nil {
		return nil, err
	}
	return &bridgev1.AttachStart{Session: &bridgev1.AttachStart_Resume{Resume: &bridgev1.ResumeSessionRequest{
		RequestId:           o.requestID(),
		SessionId:           id,
		Config:              o.config(tools),
		ProviderRef:         o.ProviderRef,
		ContinuePendingWork: o.ContinuePendingWork,
		Lifetime:            lifetime,
		Handlers:            o.SessionHandlers,
		CallbackTimeout:     o.callbackTimeout(),
		RuntimeProfile:      o.runtimeProfile(),
		Options:             o.Resume,
		OnInterruption:      interrupted,
		UpdateMask:          o.updateMask(),
	}}}, nil
}

func (o *SessionOptions) joinStart(id string) (*bridgev1.AttachStart, error) {
	if o.ID != "" || o.Config != nil || o.DisableStreaming || o.Clear != nil || o.ProviderRef != "" || o.Lifetime != "" ||
		o.SessionHandlers != nil || o.CallbackTimeout != 0 || o.Labels != nil || o.NodeLabels != nil ||
		o.InterruptedTurns != "" || o.Cloud != nil || o.ContinuePendingWork || o.Resume != nil || o.RequestID != "" || o.RuntimeProfile != nil {
		return nil, errors.New("copilot: joining a session changes nothing about it: only the options " +
			"of the participant are allowed")
	}
	return &bridgev1.AttachStart{Session: &bridgev1.AttachStart_JoinSessionId{JoinSessionId: id}}, nil
}

// toolsByName checks tools and arranges them by name.
func toolsByName(tools []Tool) (map[string]Tool, error) {
	byName := make(map[string]Tool, len(tools))
	for _, t := range tools {
		if t.err != nil {
			return nil, t.err
		}
		name := t.Definition.GetName()
		if name == "" {
			return nil, errors.New("copilot: a tool has no name")
		}
		if _, twice := byName[name]; twice {
			return nil, fmt.Errorf("copilot: there are two tools named %q", name)
		}
		byName[name] = t
	}
	return byName, nil
}

// definitions returns the definitions of the session's tools, or of the other tools, by
// name, in a stable order for the model.
func definitions(tools map[string]Tool, bySession bool) []*cliv1.ToolDefinition {
	var defs []*cliv1.ToolDefinition
	for _, t := range tools {
		if t.OwnedBySession == bySession {
			defs = append(defs, t.Definition)
		}
	}
	slices.SortFunc(defs, func(a, b *cliv1.ToolDefinition) int { return strings.Compare(a.GetName(), b.GetName()) })
	return defs
}
