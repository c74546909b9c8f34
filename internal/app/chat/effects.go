package chat

import (
	"context"
	"fmt"
	"strings"

	copilot "github.com/copilot-grpc/copilot-grpc/clients/go"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
	cliv1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/cli/v1"
)

// Effect is something that a conversation asks its Link to do.
type Effect interface {
	// run does it. The result has the effect.
	run(ctx context.Context, l *Link) Result
}

// Result is what became of an effect.
type Result struct {
	Effect Effect
	Err    error
	// A line for the timeline.
	Text string
	// Of a prompt: its id, and the position at which it was accepted.
	MessageID string
	Position  *bridgev1.Position
}

// Send sends a prompt.
type Send struct {
	Text        string
	Immediately bool
	// Files of this machine to attach.
	Files []string
}

func (e Send) run(ctx context.Context, l *Link) Result {
	var opts []copilot.SendOption
	if e.Immediately {
		opts = append(opts, copilot.Immediately())
	}
	for _, path := range e.Files {
		opts = append(opts, copilot.AttachFile(inHome(path)))
	}
	resp, err := l.session.Send(ctx, e.Text, opts...)
	return Result{Err: err, MessageID: resp.GetMessageId(), Position: resp.GetPosition()}
}

// CheckFile reports whether a file can be attached.
type CheckFile struct{ Path string }

func (e CheckFile) run(context.Context, *Link) Result {
	size, err := FileSize(inHome(e.Path))
	return Result{Err: err, Text: fmt.Sprintf("The next prompt has the file %s (%d bytes).", e.Path, size)}
}

// Keep keeps an input for later chats.
type Keep struct{ Text string }

func (e Keep) run(_ context.Context, l *Link) Result { return Result{Err: l.inputs.keep(e.Text)} }

// Abort stops the running turn and what is queued behind it.
type Abort struct{}

func (Abort) run(ctx context.Context, l *Link) Result {
	_, err := l.session.Abort(ctx)
	return Result{Err: err}
}

// Resolve answers a callback.
type Resolve struct {
	CallbackID string
	Answer     *bridgev1.Answer
}

func (e Resolve) run(ctx context.Context, l *Link) Result {
	return Result{Err: l.session.Resolve(ctx, e.CallbackID, e.Answer)}
}

// SetModel switches the model; without an id it lists the models.
type SetModel struct{ ID string }

func (e SetModel) run(ctx context.Context, l *Link) Result {
	if e.ID != "" {
		used, err := l.session.SetModel(ctx, e.ID, "")
		if used == "" {
			used = e.ID
		}
		return Result{Err: err, Text: "The model is " + used + " from the next turn on."}
	}
	resp, err := l.client.Runtimes().ListModels(ctx, &bridgev1.ListModelsRequest{})
	lines := []string{"The models of the account:"}
	for _, m := range resp.GetModels() {
		lines = append(lines, fmt.Sprintf("  %s  %s", m.GetId(), m.GetName()))
	}
	return Result{Err: copilot.FromError(err), Text: strings.Join(lines, "\n")}
}

// ShowUsage tells what the session has used.
type ShowUsage struct{}

func (ShowUsage) run(ctx context.Context, l *Link) Result {
	rows, err := l.client.Usage(ctx, copilot.UsageOptions{
		SessionID: l.session.ID(), By: []copilot.UsageGroup{copilot.UsageByModel},
	})
	var lines []string
	for _, r := range rows {
		lines = append(lines, fmt.Sprintf("%s: %d turns, %d requests, %d tokens in (%d cached), %d out, cost %g",
			r.GetModelId(), r.GetTurns(), r.GetRequests(), r.GetInputTokens(), r.GetCacheReadTokens(), r.GetOutputTokens(),
			r.GetCost()))
	}
	if len(lines) == 0 {
		lines = []string{"The session has used no model yet."}
	}
	return Result{Err: err, Text: strings.Join(lines, "\n")}
}

// Fork copies the session. The copy is open, and its questions wait for people as those of the session.
type Fork struct{ Name string }

func (e Fork) run(ctx context.Context, l *Link) Result {
	req := &cliv1.SessionsServiceForkRequest{SessionId: l.session.ID()}
	if e.Name != "" {
		req.Name = &e.Name
	}
	resp, err := cliv1.NewSessionsServiceClient(l.client.Conn()).Fork(ctx, req)
	if err != nil {
		return Result{Err: copilot.FromError(err)}
	}
	id := resp.GetSessionId()
	forked, err := l.client.ResumeSession(ctx, id, copilot.SessionOptions{
		SessionHandlers: &bridgev1.Handlers{Kinds: answeredByPeople},
	})
	if err != nil {
		return Result{Err: fmt.Errorf("the copy %s cannot be opened: %w", id, err)}
	}
	return Result{Err: forked.Close(), Text: "The copy is the session " + id + ". Talk to it with: " + l.options.Command(id)}
}

// ShowFiles lists the files that the session has changed or keeps.
type ShowFiles struct{}

func (ShowFiles) run(ctx context.Context, l *Link) Result {
	workspace, id := cliv1.NewSessionWorkspacesServiceClient(l.client.Conn()), l.session.ID()
	diff, err := workspace.Diff(ctx, &cliv1.SessionWorkspacesServiceDiffRequest{
		SessionId: id, Mode: cliv1.WorkspaceDiffMode_WORKSPACE_DIFF_MODE_SESSION,
	})
	if err != nil {
		return Result{Err: copilot.FromError(err)}
	}
	kept, err := workspace.ListFiles(ctx, &cliv1.SessionWorkspacesServiceListFilesRequest{SessionId: id})
	return Result{Err: copilot.FromError(err), Text: filesText(diff, kept.GetFiles())}
}

// Share offers the session to another tenant, to take part in it.
type Share struct{ Tenant string }

func (e Share) run(ctx context.Context, l *Link) Result {
	_, err := l.client.Sessions().ShareSession(ctx, &bridgev1.ShareSessionRequest{
		SessionId: l.session.ID(), Tenant: e.Tenant, Access: bridgev1.ShareAccess_SHARE_ACCESS_PARTICIPATE,
	})
	return Result{Err: copilot.FromError(err), Text: "The session is offered to " + e.Tenant + "."}
}

// Leave ends the chat. The session goes on.
type Leave struct{}

func (Leave) run(context.Context, *Link) Result { return Result{} }
