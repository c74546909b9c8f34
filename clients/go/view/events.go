package view

import (
	"cmp"
	"slices"
	"time"

	copilot "github.com/copilot-grpc/copilot-grpc/clients/go"
	"google.golang.org/protobuf/reflect/protoreflect"

	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
	cliv1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/cli/v1"
)

// event takes an event. Events of other types change nothing.
func (r *reducer) event(event *bridgev1.Event) {
	switch d := event.GetEvent().GetData().(type) {
	case *cliv1.SessionEvent_UserMessage:
		r.userMessage(event, d.UserMessage)
	case *cliv1.SessionEvent_AssistantTurnStart:
		if agentOf(event) == "" {
			r.start()
		}
	case *cliv1.SessionEvent_AssistantIntent:
		if agentOf(event) == "" {
			r.Turn.Intent = d.AssistantIntent.GetIntent()
		}
	case *cliv1.SessionEvent_SessionTitleChanged:
		r.Title = d.SessionTitleChanged.GetTitle()
	case *cliv1.SessionEvent_SessionModelChange:
		if agentOf(event) == "" {
			r.Model = d.SessionModelChange.GetNewModel()
		}
	case *cliv1.SessionEvent_SessionInfo:
		r.notice(event, Info, d.SessionInfo.GetMessage())
	case *cliv1.SessionEvent_SessionWarning:
		r.notice(event, Warning, d.SessionWarning.GetMessage())
	case *cliv1.SessionEvent_SessionError:
		r.notice(event, Error, d.SessionError.GetMessage())
	case *cliv1.SessionEvent_SessionIdle:
		r.idle()
	case *cliv1.SessionEvent_AssistantUsage:
		r.Usage = used(r.Usage, d.AssistantUsage)
	case *cliv1.SessionEvent_SessionUsageInfo:
		if agentOf(event) == "" {
			r.Usage.ContextTokens = d.SessionUsageInfo.GetCurrentTokens()
			r.Usage.ContextLimit = d.SessionUsageInfo.GetTokenLimit()
		}
	default:
		r.answer(event)
	}
}

// answer takes a part of the agent's answer: text, reasoning or a tool call.
func (r *reducer) answer(event *bridgev1.Event) {
	switch d := event.GetEvent().GetData().(type) {
	case *cliv1.SessionEvent_AssistantMessageStart:
		r.message(event, d.AssistantMessageStart.GetMessageId(), func(*Message) {})
	case *cliv1.SessionEvent_AssistantMessageDelta:
		r.message(event, d.AssistantMessageDelta.GetMessageId(), func(m *Message) {
			if m.Streaming {
				m.Text += d.AssistantMessageDelta.GetDeltaContent()
			}
		})
	case *cliv1.SessionEvent_AssistantMessage:
		r.assistantMessage(event, d.AssistantMessage)
	case *cliv1.SessionEvent_AssistantReasoningDelta:
		r.reasoning(event, d.AssistantReasoningDelta.GetReasoningId(), func(r *Reasoning) {
			if r.Streaming {
				r.Text += d.AssistantReasoningDelta.GetDeltaContent()
			}
		})
	case *cliv1.SessionEvent_AssistantReasoning:
		r.reasoning(event, d.AssistantReasoning.GetReasoningId(), func(r *Reasoning) {
			r.Text, r.Streaming = d.AssistantReasoning.GetContent(), false
		})
	default:
		r.toolCall(event)
	}
}

// toolCall takes a part of a tool call.
func (r *reducer) toolCall(event *bridgev1.Event) {
	switch d := event.GetEvent().GetData().(type) {
	case *cliv1.SessionEvent_AssistantToolCallDelta:
		delta := d.AssistantToolCallDelta
		r.tool(event, delta.GetToolCallId(), func(t *Tool) {
			if t.State == ToolStreaming {
				t.Name = cmp.Or(delta.GetToolName(), t.Name)
				t.ArgumentsJSON += delta.GetInputDelta()
			}
		})
	case *cliv1.SessionEvent_ToolExecutionStart:
		start := d.ToolExecutionStart
		r.tool(event, start.GetToolCallId(), func(t *Tool) {
			if !t.isDone() {
				t.Name, t.State, t.StartedAt = start.GetToolName(), ToolRunning, timeOf(event)
				t.ArgumentsJSON = given(start.ArgumentsJson, t.ArgumentsJSON)
			}
		})
	case *cliv1.SessionEvent_ToolExecutionPartialResult:
		r.tool(event, d.ToolExecutionPartialResult.GetToolCallId(), func(t *Tool) {
			if !t.isDone() {
				t.Output = d.ToolExecutionPartialResult.GetPartialOutput()
			}
		})
	case *cliv1.SessionEvent_ToolExecutionProgress:
		r.tool(event, d.ToolExecutionProgress.GetToolCallId(), func(t *Tool) {
			if !t.isDone() {
				t.Progress = d.ToolExecutionProgress.GetProgressMessage()
			}
		})
	case *cliv1.SessionEvent_ToolExecutionComplete:
		r.tool(event, d.ToolExecutionComplete.GetToolCallId(), func(t *Tool) {
			complete(t, event, d.ToolExecutionComplete)
		})
	default:
		r.subagent(event)
	}
}

func complete(t *Tool, event *bridgev1.Event, data *cliv1.ToolExecutionCompleteData) {
	t.State = ToolFailed
	if data.GetSuccess() {
		t.State = ToolCompleted
	}
	t.Detail = ""
	if result := data.GetResult(); result != nil {
		t.Output = result.GetContent()
		if result.GetDetailedContent() != result.GetContent() {
			t.Detail = result.GetDetailedContent()
		}
	}
	t.Error, t.Progress, t.EndedAt = data.GetError().GetMessage(), "", timeOf(event)
}

// subagent takes an event of a sub-agent.
func (r *reducer) subagent(event *bridgev1.Event) {
	switch d := event.GetEvent().GetData().(type) {
	case *cliv1.SessionEvent_SubagentStarted:
		name := cmp.Or(d.SubagentStarted.GetAgentDisplayName(), d.SubagentStarted.GetAgentName())
		r.agent(event, d.SubagentStarted.GetToolCallId(), func(a *Agent) { a.Name, a.State = name, AgentRunning })
	case *cliv1.SessionEvent_SubagentCompleted:
		end := d.SubagentCompleted
		r.agent(event, end.GetToolCallId(), func(a *Agent) {
			a.State, a.ToolCalls, a.Tokens = AgentCompleted, end.GetTotalToolCalls(), end.GetTotalTokens()
			a.Duration = time.Duration(end.GetDurationMs()) * time.Millisecond
		})
	case *cliv1.SessionEvent_SubagentFailed:
		end := d.SubagentFailed
		r.agent(event, end.GetToolCallId(), func(a *Agent) {
			a.State, a.ToolCalls, a.Tokens = AgentFailed, end.GetTotalToolCalls(), end.GetTotalTokens()
			a.Duration = time.Duration(end.GetDurationMs()) * time.Millisecond
			a.Error = end.GetError()
		})
	}
}

func (r *reducer) agent(event *bridgev1.Event, toolCallID string, change func(*Agent)) {
	r.Agents = slices.Clone(r.Agents)
	i := slices.IndexFunc(r.Agents, func(a Agent) bool { return a.ToolCallID == toolCallID })
	if i < 0 {
		i = len(r.Agents)
		r.Agents = append(r.Agents, Agent{AgentID: agentOf(event), ToolCallID: toolCallID, State: AgentRunning})
	}
	change(&r.Agents[i])
}

// start begins a turn, unless one is running.
func (r *reducer) start() {
	if !r.Turn.Running {
		r.Turn = Turn{Running: true}
	}
}

func (r *reducer) userMessage(event *bridgev1.Event, data *cliv1.UserMessageData) {
	if agentOf(event) == "" {
		r.start()
	}
	r.add(User{
		Head: Head{cmp.Or(data.GetMessageId(), eventKey(event)), event.GetPosition()}, AgentID: agentOf(event),
		Text: data.GetContent(), Attachments: attachmentsOf(data.GetAttachments()), Source: data.GetSource(), At: timeOf(event),
	})
}

func attachmentsOf(list []*cliv1.Attachment) []Attachment {
	var attachments []Attachment
	for _, one := range list {
		attachments = append(attachments, attachmentOf(one))
	}
	return attachments
}

func attachmentOf(one *cliv1.Attachment) Attachment {
	message := one.ProtoReflect()
	variant := message.WhichOneof(message.Descriptor().Oneofs().ByName("variant"))
	if variant == nil || variant.Message() == nil {
		return Attachment{}
	}
	value := message.Get(variant).Message()
	text := func(name protoreflect.Name) string {
		field := value.Descriptor().Fields().ByName(name)
		if field == nil || field.Kind() != protoreflect.StringKind {
			return ""
		}
		return value.Get(field).String()
	}
	name := cmp.Or(text("display_name"), text("title"), text("path"), text("url"))
	return Attachment{Kind: variant.JSONName(), Name: name, MIMEType: text("mime_type")}
}

func (r *reducer) assistantMessage(event *bridgev1.Event, data *cliv1.AssistantMessageData) {
	// A message that only calls tools has no text to show.
	if data.GetContent() != "" || find[Message](r.Items, data.GetMessageId()) >= 0 {
		r.message(event, data.GetMessageId(), func(m *Message) {
			// A long event is shortened; its deltas are whole.
			if !event.GetTruncated() || len(m.Text) <= len(data.GetContent()) {
				m.Text = data.GetContent()
			}
			m.Streaming = false
		})
	}
	for _, request := range data.GetToolRequests() {
		r.tool(event, request.GetToolCallId(), func(t *Tool) {
			if t.State == ToolStreaming {
				t.Name, t.State = request.GetName(), ToolRequested
				t.ArgumentsJSON = given(request.ArgumentsJson, t.ArgumentsJSON)
			}
		})
	}
}

func used(u Usage, data *cliv1.AssistantUsageData) Usage {
	u.Requests++
	u.InputTokens += data.GetInputTokens()
	u.OutputTokens += data.GetOutputTokens()
	u.Cost += data.GetCost()
	return u
}

func (r *reducer) message(event *bridgev1.Event, key string, change func(*Message)) {
	upsert(r, Message{
		Head: Head{key, event.GetPosition()}, AgentID: agentOf(event), Streaming: true, At: timeOf(event),
	}, change)
}

func (r *reducer) reasoning(event *bridgev1.Event, key string, change func(*Reasoning)) {
	upsert(r, Reasoning{
		Head: Head{key, event.GetPosition()}, AgentID: agentOf(event), Streaming: true, At: timeOf(event),
	}, change)
}

func (r *reducer) tool(event *bridgev1.Event, id string, change func(*Tool)) {
	upsert(r, Tool{
		Head: Head{id, event.GetPosition()}, ToolCallID: id, AgentID: agentOf(event), State: ToolStreaming,
	}, change)
}

func (r *reducer) notice(event *bridgev1.Event, level Level, text string) {
	r.add(Notice{Head: Head{eventKey(event), event.GetPosition()}, Level: level, Text: text})
}

// given is a value that may be missing.
func given(value *string, otherwise string) string {
	if value == nil {
		return otherwise
	}
	return *value
}

func agentOf(event *bridgev1.Event) string { return event.GetEvent().GetAgentId() }

// timeOf is the time of an event; zero if unknown.
func timeOf(event *bridgev1.Event) time.Time {
	if at := event.GetEvent().GetTimestamp(); at != nil {
		return at.AsTime()
	}
	return time.Time{}
}

func eventKey(event *bridgev1.Event) string {
	return cmp.Or(event.GetEvent().GetId(), copilot.FormatPosition(event.GetPosition()))
}
