package request

import (
	"fmt"
	"strings"

	"github.com/copilot-grpc/copilot-grpc/bridge/caller"
	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
	"github.com/copilot-grpc/copilot-grpc/bridge/fields"
	"github.com/copilot-grpc/copilot-grpc/bridge/jsonobj"
	"github.com/copilot-grpc/copilot-grpc/bridge/session"

	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
	cliv1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/cli/v1"
)

// notOfPrompts are members of the CLI's request that json_extra must not set.
var notOfPrompts = []string{"sessionId", "wait"}

// Prompt reads a prompt, the field "prompt" of a request.
func (p *Parser) Prompt(c caller.Caller, in *bridgev1.Prompt) (m session.Message, err error) {
	if strings.TrimSpace(in.GetText()) == "" && len(in.GetAttachments()) == 0 {
		return m, fault.New(fault.PromptEmpty, "the prompt has neither text nor attachments").WithField("prompt.text")
	}
	if err := p.cfg.CheckPrompt(c.Tenant, len(in.GetText()), "prompt.text"); err != nil {
		return m, err
	}
	if err := p.checkAttachments(in); err != nil {
		return m, err
	}
	if err := fields.Known(in.GetHeaderStrategy(), "prompt.header_strategy"); err != nil {
		return m, err
	}
	// The CLI's own request has the same members; it is translated as one.
	send := &cliv1.SessionServiceSendRequest{
		Prompt: in.GetText(), Attachments: in.GetAttachments(), Mode: in.GetMode(), AgentMode: in.GetAgentMode(),
		RequestHeaders: in.GetRequestHeaders(), ResponseFormat: in.GetResponseFormat(), Billable: in.Billable,
		DisplayPrompt: Optional(in.GetDisplayText()), RequiredTool: Optional(in.GetRequiredTool()),
		Source: Optional(in.GetSource()), Traceparent: Optional(in.GetTraceparent()),
		Tracestate: Optional(in.GetTracestate()), JsonExtra: in.GetJsonExtra(),
	}
	if in.GetPrepend() {
		send.Prepend = &in.Prepend
	}
	text, err := p.cfg.Codec.ToJSON(send, "prompt", notOfPrompts...)
	if err != nil {
		return m, err
	}
	if m.Params, err = jsonobj.Parse(text); err != nil {
		return m, fault.Wrap(err, fault.Internal, "prompt")
	}
	m.Immediate = in.GetMode() == cliv1.SendMode_SEND_MODE_IMMEDIATE
	merge := in.GetHeaderStrategy() == bridgev1.HeaderStrategy_HEADER_STRATEGY_MERGE
	m.Override = len(in.GetRequestHeaders()) > 0 && !merge
	return m, nil
}

// checkAttachments refuses attachments without what the CLI needs: the model would not see them, or see parts of them.
func (p *Parser) checkAttachments(in *bridgev1.Prompt) error {
	if lacking := p.cfg.Codec.LackingWithin(in.ProtoReflect()); lacking != "" {
		return fault.New(fault.InvalidField, "%s is required", lacking).WithField("prompt." + lacking)
	}
	for i, a := range in.GetAttachments() {
		blob := a.GetBlob()
		empty := blob != nil && len(blob.GetData()) == 0 && blob.GetAssetId() == ""
		if empty && !(blob.Data != nil && strings.HasPrefix(blob.GetMimeType(), "text/")) {
			return fault.New(fault.InvalidField, "an attachment without data").
				WithField(fmt.Sprintf("prompt.attachments[%d].blob.data", i))
		}
	}
	return nil
}

// Optional returns a pointer to s, nil for the empty string.
func Optional(s string) *string {
	if s == "" {
		return nil
	}
	set := s // s itself would be on the heap also if it is empty
	return &set
}
