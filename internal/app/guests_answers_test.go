package app

import (
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"

	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
	cliv1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/cli/v1"
	"github.com/copilot-grpc/copilot-grpc/internal/testing/fakecli"
)

// A guest's answers permit no action of the owner's: a guest may approve one call of a caller's tool, and sees nothing
// that belongs to the owner's machine.
func TestGuestsApproveNothingOfTheHost(t *testing.T) {
	t.Parallel()
	const custom, shell = "use the caller's tool", "use the shell"
	for _, owner := range []string{"open-owner", "boxed-owner"} {
		t.Run(owner, func(t *testing.T) {
			t.Parallel()
			ts := startTenants(t, func(c *Config) {
				c.Policy = writePolicy(t, guestsPolicy, "open-owner", "boxed-owner", "open-guest", "boxed-guest",
					"host", "operator")
			})
			ts.plays(owner, fakecli.Script{Prompts: []fakecli.Prompt{
				{Match: custom, Turns: []fakecli.Turn{{Tools: []fakecli.Tool{{Name: "deploy"}}}, {Text: "done"}}},
				{Match: shell, Turns: []fakecli.Turn{{Tools: []fakecli.Tool{{
					Name:       "deploy",
					Permission: []byte(`{"kind":"shell","fullCommandText":"rm -rf /","commands":[{"identifier":"rm"}]}`),
				}}}, {Text: "done"}}},
			}})
			if _, err := bridgev1.NewSessionServiceClient(ts.as(owner)).CreateSession(t.Context(),
				&bridgev1.CreateSessionRequest{
					SessionId: "s", Handlers: &bridgev1.Handlers{Permission: true},
					Config: &cliv1.SessionConfig{Tools: []*cliv1.ToolDefinition{{Name: "deploy", Description: "x"}}},
				}); err != nil {
				t.Fatal(err)
			}
			name := owner + "/s"
			offer(t, ts.as(owner), "s", "boxed-guest", toParticipate)
			accept(t, ts.as("boxed-guest"), name)
			g := guestAnswers{t: t, conn: ts.as("boxed-guest"), name: name}
			id := g.asked(shell)
			forSession := &cliv1.PermissionDecision{Variant: &cliv1.PermissionDecision_ApproveForSession{ApproveForSession: &cliv1.PermissionDecisionApproveForSession{
				Approval: &cliv1.PermissionDecisionApproveForSessionApproval{Variant: &cliv1.PermissionDecisionApproveForSessionApproval_Write{
					Write: &cliv1.PermissionDecisionApproveForSessionApprovalWrite{},
				}},
			}}}
			for what, answer := range map[string]*bridgev1.Answer{
				"approve":             {Answer: &bridgev1.Answer_Approve{Approve: &bridgev1.Approve{}}},
				"approve once":        decided(&cliv1.PermissionDecision{Variant: &cliv1.PermissionDecision_ApproveOnce{ApproveOnce: &cliv1.PermissionDecisionApproveOnce{}}}),
				"approve the session": decided(forSession),
			} {
				wantCode(t, what, g.resolve(id, answer), codes.PermissionDenied)
			}
			for _, exact := range []bool{false, true} {
				wantCode(t, "the CLI's own method", g.handle(id, exact), codes.PermissionDenied)
			}
			wantCode(t, "rejecting",
				g.resolve(id, &bridgev1.Answer{Answer: &bridgev1.Answer_Reject{Reject: &bridgev1.Reject{}}}), codes.OK)
			g.over()
			id = g.asked(custom)
			wantCode(t, "approving writing with a caller's tool", g.resolve(id, decided(forSession)),
				codes.PermissionDenied)
			wantCode(t, "approving a caller's tool",
				g.resolve(id, &bridgev1.Answer{Answer: &bridgev1.Answer_Approve{Approve: &bridgev1.Approve{}}}),
				codes.OK)
			wantCode(t, "answering the tool",
				g.resolve(g.waiting(bridgev1.CallbackKind_CALLBACK_KIND_TOOL_CALL), &bridgev1.Answer{
					Answer: &bridgev1.Answer_Tool{Tool: &bridgev1.ToolAnswer{Outcome: &bridgev1.ToolAnswer_Text{Text: "done"}}},
				}), codes.OK)
			for _, kind := range []bridgev1.CallbackKind{bridgev1.CallbackKind_CALLBACK_KIND_HOOK,
				bridgev1.CallbackKind_CALLBACK_KIND_MODEL_REQUEST_START} {
				wantCode(t, "handling "+kind.String(), g.handles(kind), codes.PermissionDenied)
			}
		})
	}
}

func decided(d *cliv1.PermissionDecision) *bridgev1.Answer {
	return &bridgev1.Answer{Answer: &bridgev1.Answer_Permission{Permission: d}}
}

// guestAnswers is a guest that answers the callbacks of a session.
type guestAnswers struct {
	t    *testing.T
	conn *grpc.ClientConn
	name string
}

// asked says something and returns the permission request that follows.
func (g guestAnswers) asked(prompt string) (id string) {
	g.t.Helper()
	if _, err := bridgev1.NewSessionServiceClient(g.conn).Send(g.t.Context(), &bridgev1.SendRequest{
		SessionId: g.name, Prompt: &bridgev1.Prompt{Text: prompt},
	}); err != nil {
		g.t.Fatal(err)
	}
	return g.waiting(bridgev1.CallbackKind_CALLBACK_KIND_PERMISSION)
}

// waiting returns the callback of a kind that waits, as soon as one does.
func (g guestAnswers) waiting(kind bridgev1.CallbackKind) (id string) {
	g.t.Helper()
	await(g.t, kind.String(), func() bool {
		list, err := bridgev1.NewCallbackServiceClient(g.conn).ListPending(g.t.Context(),
			&bridgev1.ListPendingRequest{SessionId: g.name})
		if err != nil {
			g.t.Fatal(err)
		}
		for _, c := range list.GetCallbacks() {
			if c.GetSessionId() != g.name {
				g.t.Errorf("a callback is of the session %q", c.GetSessionId())
			}
			if c.GetKind() == kind {
				id = c.GetCallbackId()
			}
		}
		return id != ""
	})
	return id
}

func (g guestAnswers) resolve(id string, a *bridgev1.Answer) error {
	_, err := bridgev1.NewCallbackServiceClient(g.conn).Resolve(g.t.Context(),
		&bridgev1.ResolveRequest{SessionId: g.name, CallbackId: id, Answer: a})
	return err
}

// handle approves by the CLI's own method.
func (g guestAnswers) handle(id string, exact bool) error {
	ctx := g.t.Context()
	if exact {
		ctx = metadata.AppendToOutgoingContext(ctx, "copilot-fidelity", "exact")
	}
	_, err := cliv1.NewSessionPermissionsServiceClient(g.conn).HandlePendingPermissionRequest(ctx,
		&cliv1.SessionPermissionsServiceHandlePendingPermissionRequestRequest{
			SessionId: g.name, RequestId: id,
			Result: &cliv1.PermissionDecision{Variant: &cliv1.PermissionDecision_ApproveOnce{ApproveOnce: &cliv1.PermissionDecisionApproveOnce{}}},
		})
	return err
}

// handles joins the session as one that handles a kind of callback.
func (g guestAnswers) handles(kind bridgev1.CallbackKind) error {
	stream, err := bridgev1.NewCallbackServiceClient(g.conn).Attach(g.t.Context())
	if err == nil {
		err = stream.Send(&bridgev1.AttachRequest{Frame: &bridgev1.AttachRequest_Start{Start: &bridgev1.AttachStart{
			Session:  &bridgev1.AttachStart_JoinSessionId{JoinSessionId: g.name},
			Handlers: &bridgev1.Handlers{Kinds: []bridgev1.CallbackKind{kind}},
		}}})
	}
	if err == nil {
		_, err = stream.Recv()
	}
	return err
}

// over waits until no turn runs.
func (g guestAnswers) over() {
	g.t.Helper()
	await(g.t, "the turn's end", func() bool {
		got, err := bridgev1.NewSessionServiceClient(g.conn).GetSession(g.t.Context(),
			&bridgev1.GetSessionRequest{SessionId: g.name})
		if err != nil {
			g.t.Fatal(err)
		}
		return !got.GetSession().GetTurnRunning()
	})
}
