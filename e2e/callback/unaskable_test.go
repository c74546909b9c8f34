package callback

import (
	"encoding/json"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/copilot-grpc/copilot-grpc/e2e/harness"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
	cliv1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/cli/v1"
	"github.com/copilot-grpc/copilot-grpc/internal/testing/fakecli"
)

// faked is the script of a fake CLI that asks something in the turn "ask", and sends the answer as its text.
func faked(request fakecli.Reverse) harness.HostConfig {
	return harness.HostConfig{Fake: &fakecli.Script{Prompts: []fakecli.Prompt{{
		Match: "ask", Turns: []fakecli.Turn{{Requests: []fakecli.Reverse{request}, Text: "told: {{answer}}"}},
	}}}}
}

func params(text string) json.RawMessage { return json.RawMessage(text) }

// unaskable are the kinds that the real CLI cannot be brought to ask of a client that is
// no part of it, and offline; docs/callbacks.md says why. A fake one asks them, of the real
// server.
var unaskable = map[string]question{
	"workflow execute": {
		kind: bridgev1.CallbackKind_CALLBACK_KIND_WORKFLOW_EXECUTE,
		host: faked(fakecli.Reverse{Method: "workflow.execute",
			Params: params(`{"name":"build","runId":"r1","executionToken":"t1","args":{"x":1}}`)}),
		request:  `name:"build" run_id:"r1"`,
		accept:   &cliv1.CallbackWorkflowServiceExecuteResponse{ResultJson: proto.String(`{"built":true}`)},
		accepted: `{"result":{"built":true}}`,
		decline:  failing, declined: "error: not today",
		wrong:  &cliv1.CallbackWorkflowServiceExecuteResponse{ResultJson: proto.String(`{`)},
		silent: "error: workflow.execute: no participant",
	},
	"workflow abort": {
		kind: bridgev1.CallbackKind_CALLBACK_KIND_WORKFLOW_ABORT,
		host: faked(fakecli.Reverse{Method: "workflow.abort",
			Params: params(`{"runId":"r1","executionToken":"t1"}`)}),
		request: `run_id:"r1"`,
		accept:  &cliv1.CallbackWorkflowServiceAbortResponse{}, accepted: "told: {}",
		decline: failing, declined: "error: not today",
		silent: "error: workflow.abort: no participant",
	},
	"factory execute": {
		kind: bridgev1.CallbackKind_CALLBACK_KIND_FACTORY_EXECUTE,
		host: faked(fakecli.Reverse{Method: "factory.execute",
			Params: params(`{"name":"build","runId":"r1","executionToken":"t1","args":{"x":1}}`)}),
		request: `name:"build" run_id:"r1"`,
		//lint:ignore SA1019 the older supported version has it
		accept: &cliv1.CallbackFactoryServiceExecuteResponse{ResultJson: proto.String(`7`)}, accepted: `{"result":7}`,
		decline: failing, declined: "error: not today",
		silent: "error: factory.execute: no participant",
	},
	"factory abort": {
		kind:    bridgev1.CallbackKind_CALLBACK_KIND_FACTORY_ABORT,
		host:    faked(fakecli.Reverse{Method: "factory.abort", Params: params(`{"runId":"r1"}`)}),
		request: `run_id:"r1"`,
		//lint:ignore SA1019 the older supported version has it
		accept: &cliv1.CallbackFactoryServiceAbortResponse{}, accepted: "told: {}",
		decline: failing, declined: "error: not today",
		silent: "error: factory.abort: no participant",
	},
	"installation": {
		kind: bridgev1.CallbackKind_CALLBACK_KIND_INSTALLATION_CONFIRM,
		host: faked(fakecli.Reverse{Method: "installations.confirm", Global: true, Params: params(
			`{"confirmationId":"c1","operationId":"o1","expiresAt":"2030-01-01T00:00:00Z","reviewFingerprint":"f1","review":{"resource":"skill"}}`)}),
		request: `operation_id:"o1"`,
		answer: func(cb *bridgev1.Callback) proto.Message {
			asked := cb.GetInstallationConfirm()
			return &cliv1.CallbackInstallationsServiceConfirmResponse{
				ConfirmationId: asked.GetConfirmationId(), ReviewFingerprint: asked.GetReviewFingerprint(),
				Decision: cliv1.InstallationDecision_INSTALLATION_DECISION_CONFIRM,
			}
		},
		accepted: `"decision":"confirm"`,
		decline: &cliv1.CallbackInstallationsServiceConfirmResponse{
			ConfirmationId: "c1", ReviewFingerprint: "f1",
			Decision: cliv1.InstallationDecision_INSTALLATION_DECISION_DECLINE,
		}, declined: `"decision":"decline"`,
		wrong:  &cliv1.CallbackInstallationsServiceConfirmResponse{ConfirmationId: "c1", ReviewFingerprint: "f1"},
		silent: "error: installations.confirm: no participant",
	},
	"ui thread": {
		kind:    bridgev1.CallbackKind_CALLBACK_KIND_UI_THREAD,
		host:    faked(fakecli.Reverse{Method: "uiThread.run", Global: true, Params: params(`{"actionId":7}`)}),
		request: `action_id:7`,
		accept:  &cliv1.CallbackUiThreadServiceRunResponse{}, accepted: "told: null",
		decline: failing, declined: "error: not today",
		silent: "error: uiThread.run: no participant",
	},
}

func TestUnaskable(t *testing.T) {
	t.Parallel()
	for name, q := range unaskable {
		t.Run(name, func(t *testing.T) { q.test(t, nil) })
	}
}
