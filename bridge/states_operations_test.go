package bridge_test

import (
	"context"
	"errors"
	"maps"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/copilot-grpc/copilot-grpc/bridge/frame"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
	cliv1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/cli/v1"
	"github.com/copilot-grpc/copilot-grpc/internal/testing/bridgetest"
	"github.com/copilot-grpc/copilot-grpc/internal/testing/climethods"
)

// sessionOperation is an operation, with the result in each state where it is not "ok". Results that are possible have |
// between them.
type sessionOperation struct {
	name   string
	do     func(ctx context.Context, r *stateFixture) error
	except map[string]string
}

var sessionOperations = []sessionOperation{
	{"Send", func(ctx context.Context, r *stateFixture) error {
		_, err := r.Turns.Send(ctx, &bridgev1.SendRequest{SessionId: "s", Prompt: &bridgev1.Prompt{Text: "hi"}})
		return err
	}, loading},
	{"Send immediate", func(ctx context.Context, r *stateFixture) error {
		_, err := r.Turns.Send(ctx, &bridgev1.SendRequest{SessionId: "s",
			Prompt: &bridgev1.Prompt{Text: "hi", Mode: cliv1.SendMode_SEND_MODE_IMMEDIATE}})
		return err
	}, loading},
	{"SendAndWait", func(ctx context.Context, r *stateFixture) error {
		out, err := r.Turns.SendAndWait(ctx, &bridgev1.SendAndWaitRequest{SessionId: "s",
			Prompt: &bridgev1.Prompt{Text: "hi"}, Timeout: durationpb.New(2 * slowCall)})
		if s := out.GetOutcome().GetStatus(); err == nil && s != bridgev1.TurnStatus_TURN_STATUS_COMPLETED {
			return errors.New(s.String())
		}
		return err
	}, whileAsking(timedOut, with(loading, "turn", timedOut,
		"deleting", okOrGone+"|TURN_STATUS_ABORTED"))},
	{"Abort", func(ctx context.Context, r *stateFixture) error {
		out, err := r.Sessions.Abort(ctx, &bridgev1.AbortRequest{SessionId: "s"})
		if err == nil && out.GetTurnWasRunning() {
			return errors.New(turnEnded)
		}
		return err
	}, whileAsking(turnEnded, with(gone, "turn", turnEnded, "lost in a turn", okOrEnded,
		"lost asking for input", okOrEnded, "restored", okOrEnded, "without credentials", okOrEnded))},
	{"Resolve a tool call", func(ctx context.Context, r *stateFixture) error {
		return r.answer(ctx, toolText("x"))
	}, with(noneAsked, "asking for permission", invalid, "asking for input", invalid,
		"lost asking for permission", invalid)},
	{"Resolve a permission", func(ctx context.Context, r *stateFixture) error {
		return r.answer(ctx, &bridgev1.Answer{Answer: &bridgev1.Answer_Approve{Approve: &bridgev1.Approve{}}})
	}, with(noneAsked, "asking", invalid, "asking for input", invalid, "lost asking", invalid,
		"resuming, lost asking", invalid)},
	{"Resolve an input", func(ctx context.Context, r *stateFixture) error {
		return r.answer(ctx, &bridgev1.Answer{Answer: &bridgev1.Answer_UserInput{
			UserInput: &cliv1.CallbackUserInputServiceRequestResponse{Answer: "x"}}})
	}, with(noneAsked, "asking", invalid, "asking for permission", invalid, "lost asking", invalid,
		"lost asking for permission", invalid, "resuming, lost asking", invalid)},
	{"Abstain", func(ctx context.Context, r *stateFixture) error {
		return r.answer(ctx, &bridgev1.Answer{Answer: &bridgev1.Answer_Abstain{Abstain: &bridgev1.Abstain{}}})
	}, noneAsked},
	{"ListEvents", func(ctx context.Context, r *stateFixture) error {
		_, err := r.Events.ListEvents(ctx, &bridgev1.ListEventsRequest{SessionId: "s"})
		return err
	}, gone},
	{"ExportSession", func(ctx context.Context, r *stateFixture) error {
		return r.Transfers.ExportSession(ctx, &bridgev1.ExportSessionRequest{SessionId: "s"},
			func(*bridgev1.ExportSessionResponse) error { return nil })
	}, whileAsking(busy, with(changing, "turn", busy, "reloading", okOrBusy, "lost in a turn", okOrBusy,
		"lost asking for input", okOrBusy, "resuming, lost in a turn", okOrBusy, "disconnected", "ok",
		"restored", okOrBusy, "without credentials", okOrBusy))},
	{"SetModel", func(ctx context.Context, r *stateFixture) error {
		_, err := r.Sessions.SetModel(ctx, &bridgev1.SetModelRequest{SessionId: "s", ModelId: "m2"})
		return err
	}, changing},
	{"UpdateLabels", func(ctx context.Context, r *stateFixture) error {
		_, err := r.Sessions.UpdateLabels(ctx, &bridgev1.UpdateLabelsRequest{SessionId: "s",
			Set: map[string]string{"a": "b"}})
		return err
	}, gone},
	{"GetSession", func(ctx context.Context, r *stateFixture) error {
		_, err := r.Sessions.GetSession(ctx, &bridgev1.GetSessionRequest{SessionId: "s"})
		return err
	}, with(gone, "in the CLI's history only", "ok")},
	{"ResumeSession", func(ctx context.Context, r *stateFixture) error {
		_, err := r.Sessions.ResumeSession(ctx, &bridgev1.ResumeSessionRequest{SessionId: "s"})
		return err
	}, with(nil, "creating", okOrGone, "without credentials", needed, "moving", okOrMoved, "deleting", notFound,
		"deleted", notFound)},
	{"DisconnectSession", func(ctx context.Context, r *stateFixture) error {
		_, err := r.Sessions.DisconnectSession(ctx, &bridgev1.DisconnectSessionRequest{SessionId: "s"})
		return err
	}, with(gone, "disconnected", "ok")},
	{"DeleteSession", func(ctx context.Context, r *stateFixture) error {
		_, err := r.Sessions.DeleteSession(ctx, &bridgev1.DeleteSessionRequest{SessionId: "s"})
		return err
	}, with(nil, "creating", okOrGone, "moving", moved, "deleting", notFound, "deleted", notFound)},
	{"a call of the CLI", func(ctx context.Context, r *stateFixture) error {
		return r.callCLI(ctx, "session.metadata.activity",
			&cliv1.SessionMetadataServiceActivityRequest{SessionId: "s"}, false)
	}, loading},
	{"Subscribe", func(ctx context.Context, r *stateFixture) error {
		ctx, end := context.WithCancel(ctx)
		defer end()
		read := false
		err := r.Events.Subscribe(ctx, &bridgev1.SubscribeRequest{Sessions: bridgetest.Cursors("s")}, func(f frame.Frame) error {
			if m, ok := f.Message.(*bridgev1.SubscribeResponse); ok && m.GetCaughtUp() != nil {
				read = true
				end()
			}
			return nil
		})
		if read {
			return nil
		}
		return err
	}, gone},
	{"set tools", func(ctx context.Context, r *stateFixture) error {
		tools := []*cliv1.ToolDefinition{{Name: "work", SkipPermission: proto.Bool(true)}, {Name: "more"}}
		return r.callCLI(ctx, "session.tools.set",
			&cliv1.SessionToolsServiceSetRequest{SessionId: "s", Tools: tools}, false)
	}, changing},
	{"UpdateProvider", func(ctx context.Context, r *stateFixture) error {
		_, err := r.Sessions.UpdateProvider(ctx, &bridgev1.UpdateProviderRequest{SessionId: "s",
			Provider: &cliv1.ProviderConfig{BaseUrl: "http://127.0.0.1:2"}})
		return err
	}, whileAsking(busy, with(changing, "turn", busy))},
	{"ProvideCredentials", func(ctx context.Context, r *stateFixture) error {
		return provideCredentials(ctx, r)
	}, with(changing, "without credentials", "ok", "lost", okOrLost, "lost in a turn", okOrLost,
		"lost asking", okOrLost, "lost asking for permission", okOrLost, "lost asking for input", okOrLost)},
	{"Attach and leave", func(ctx context.Context, r *stateFixture) error {
		return r.attached(ctx, nil)
	}, changing},
	{"Attach, set tools and leave", func(ctx context.Context, r *stateFixture) error {
		return r.attached(ctx, &bridgev1.AttachCommand{CommandId: "1", Command: &bridgev1.AttachCommand_SetTools{
			SetTools: &bridgev1.SetToolsCommand{Tools: []*cliv1.ToolDefinition{{Name: "more"}}},
		}})
	}, changing},
	{"Unload", func(ctx context.Context, r *stateFixture) error {
		s, err := r.Store().Open(ctx, "s")
		if err != nil {
			return err
		}
		unloaded, err := s.Loader().Unload(ctx, 0)
		if err == nil && !unloaded {
			return errors.New(stays)
		}
		return err
	}, whileAsking(stays, with(gone, "turn", stays, "unloaded", stays, "lost", stays, "lost in a turn", "ok|"+stays,
		"lost asking for input", "ok|"+stays, "restored", stays, "without credentials", stays, "exporting", stays,
		"deleting", stays+"|"+notFound, "moving", stays+"|"+moved))},
	{"session.shutdown", func(ctx context.Context, r *stateFixture) error {
		return r.callCLI(ctx, "session.shutdown", &cliv1.SessionServiceShutdownRequest{SessionId: "s"}, true)
	}, with(changing, "without credentials", "ok", "lost", okOrLost, "lost in a turn", okOrLost,
		"lost asking", okOrLost, "lost asking for permission", okOrLost, "lost asking for input", okOrLost)},
	{"ShareSession", func(ctx context.Context, r *stateFixture) error {
		_, err := r.Shares.ShareSession(ctx, &bridgev1.ShareSessionRequest{SessionId: "s", Tenant: "a",
			Access: bridgev1.ShareAccess_SHARE_ACCESS_OBSERVE})
		return err
	}, gone},
	{"fork", func(ctx context.Context, r *stateFixture) error {
		return r.callCLI(ctx, "sessions.fork", &cliv1.SessionsServiceForkRequest{SessionId: "s"}, false)
	}, with(nil, "creating", okOrGone, "without credentials", needed, "deleting", okOrGone,
		"deleted", notFound)},
}

// Results other than "ok".
const (
	notFound    = "SESSION_NOT_FOUND"
	unavailable = "SESSION_UNAVAILABLE"
	noCallback  = "CALLBACK_NOT_FOUND"
	invalid     = "ANSWER_INVALID"
	needed      = "CREDENTIALS_NEEDED"
	busy        = "SESSION_BUSY"
	timedOut    = "TURN_STATUS_TIMED_OUT"
	turnEnded   = "the call says that it has ended a turn"
	stays       = "the session is not unloaded"
	// These depend on what comes first: the operation, or the end of what another caller or the server does, such as a
	// load, or the check of what became of the last prompt before a restart.
	okOrBusy  = "ok|" + busy
	okOrEnded = "ok|" + turnEnded
	okOrLost  = "ok|RUNTIME_LOST"
	okOrGone  = "ok|" + notFound
	okOrMoved = "ok|" + unavailable + "|" + notFound
	moved     = unavailable + "|" + notFound // the server then looks for the session's owner
)

// gone are the results of operations that need an open session and no runtime.
var gone = with(nil, "disconnected", notFound, "deleted", notFound, "creating", okOrGone,
	"in the CLI's history only", notFound, "deleting", okOrGone, "moving", okOrMoved)

// loading are the results of operations that need the session in a runtime.
var loading = with(gone, "without credentials", needed)

// changing are the results of operations that change the session in its runtime, and wait for other changes.
var changing = with(loading, "deleting", notFound, "moving", moved)

// noneAsked are the results of answers, for which a callback must wait.
var noneAsked = with(gone, "idle", noCallback, "turn", noCallback, "unloaded", noCallback, "reloading", noCallback,
	"lost", noCallback, "lost in a turn", noCallback, "lost asking for input", noCallback,
	"resuming, lost in a turn", noCallback, "restored", noCallback, "without credentials", noCallback,
	"exporting", noCallback, "creating", noCallback+"|"+notFound, "deleting", noCallback+"|"+notFound,
	"moving", noCallback+"|"+moved)

// with adds results to a table.
func with(table map[string]string, pairs ...string) map[string]string {
	out := maps.Clone(table)
	if out == nil {
		out = map[string]string{}
	}
	for i := 0; i < len(pairs); i += 2 {
		out[pairs[i]] = pairs[i+1]
	}
	return out
}

// whileAsking adds a result of the states in which a turn waits for an answer.
func whileAsking(result string, table map[string]string) map[string]string {
	return with(table, "asking", result, "asking for permission", result, "asking for input", result,
		"lost asking", result, "lost asking for permission", result, "resuming, lost asking", result)
}

func toolText(text string) *bridgev1.Answer {
	return &bridgev1.Answer{Answer: &bridgev1.Answer_Tool{Tool: &bridgev1.ToolAnswer{
		Outcome: &bridgev1.ToolAnswer_Text{Text: text}}}}
}

// answer answers the callback that waits, or an unknown one if none does.
func (r *stateFixture) answer(ctx context.Context, answer *bridgev1.Answer) error {
	list, err := r.Callbacks.ListPending(ctx, &bridgev1.ListPendingRequest{SessionId: "s"})
	if err != nil {
		return err
	}
	id := "none"
	if len(list.GetCallbacks()) > 0 {
		id = list.GetCallbacks()[0].GetCallbackId()
	}
	_, err = r.Callbacks.Resolve(ctx, &bridgev1.ResolveRequest{SessionId: "s", CallbackId: id, Answer: answer})
	return err
}

// callCLI makes a call of copilot.cli.v1.
func (r *stateFixture) callCLI(ctx context.Context, method string, request proto.Message, exact bool) error {
	wire, err := proto.Marshal(request)
	if err != nil {
		return err
	}
	_, err = r.CLI.CallCLI(ctx, climethods.All()[method], wire, exact, "", nil)
	return err
}

func provideCredentials(ctx context.Context, r *stateFixture) error {
	_, err := r.Sessions.ProvideCredentials(ctx, &bridgev1.ProvideCredentialsRequest{SessionId: "s",
		Provider: &cliv1.ProviderConfig{ApiKey: proto.String("key")}})
	return err
}

// attached joins the session as a participant, gives a command if there is one, and leaves when it has been carried
// out.
func (r *stateFixture) attached(ctx context.Context, command *bridgev1.AttachCommand) error {
	a, err := r.Participants.Attach(ctx, &bridgev1.AttachStart{
		Session: &bridgev1.AttachStart_JoinSessionId{JoinSessionId: "s"}})
	if err != nil {
		return err
	}
	give := func(q *bridgev1.AttachRequest) { err = errors.Join(err, a.Handle(ctx, q)) }
	leave := func() {
		give(&bridgev1.AttachRequest{Frame: &bridgev1.AttachRequest_Leave{Leave: &bridgev1.AttachLeave{}}})
	}
	ended := a.Stream(ctx, func(f frame.Frame) error {
		m, ok := f.Message.(*bridgev1.AttachResponse)
		switch {
		case !ok:
		case m.GetStarted() != nil && command != nil:
			give(&bridgev1.AttachRequest{Frame: &bridgev1.AttachRequest_Command{Command: command}})
		case m.GetStarted() != nil, m.GetDone() != nil:
			leave()
		case m.GetFailed() != nil:
			err = errors.Join(err, errors.New(m.GetFailed().GetFailure().GetReason().String()))
			leave()
		}
		return nil
	})
	return errors.Join(err, ended)
}
