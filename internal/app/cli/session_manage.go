package cli

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"strings"

	"google.golang.org/protobuf/proto"

	copilot "github.com/copilot-grpc/copilot-grpc/clients/go"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
	cliv1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/cli/v1"
	"github.com/copilot-grpc/copilot-grpc/internal/terminal"
)

// clientName is the name of the sessions' participants and creator.
const clientName = "copilot-grpc"

const createUsage = `Creates a session and prints its id. The session stays until it is disconnected or deleted.

  copilot-grpc sessions create --dir ~/work/shop --label team=payments

Its requests for permission are refused unless a program, or a person, is attached to answer them.`

type newSession struct {
	id, model, dir, provider string
	labels                   labels
}

func (n *newSession) flags(f *flags) {
	f.StringVar(&n.model, "model", "", "`id` of the model (default: the server's)")
	f.StringVar(&n.dir, "dir", "", "working `directory`, on the server's machine (default: the server's)")
	f.StringVar(&n.provider, "provider-ref", "", "`name` of a model provider of the server's configuration")
	f.Var(&n.labels, "label", "label of the session, as `KEY=VALUE`; repeatable")
}

func (n *newSession) config() *copilot.SessionConfig {
	config := &copilot.SessionConfig{ClientName: proto.String(clientName), Streaming: proto.Bool(true)}
	if n.model != "" {
		config.Model = &n.model
	}
	if n.dir != "" {
		config.WorkingDirectory = &n.dir
	}
	return config
}

func setupCreate(p *program, f *flags) action {
	c := p.connection(f)
	out := p.printer(f)
	var n newSession
	f.StringVar(&n.id, "id", "", "`id` of the session (default: a random one)")
	n.flags(f)
	return func(ctx context.Context, _ []string) error {
		return c.with(ctx, func(client *copilot.Client) error {
			made, err := client.Sessions().CreateSession(ctx, &bridgev1.CreateSessionRequest{
				RequestId: rand.Text(), SessionId: n.id, Config: n.config(), ProviderRef: n.provider, Labels: n.labels.set,
			})
			if err != nil {
				return err
			}
			return out.id(made.GetSession())
		})
	}
}

// id prints a session's id, or the session as JSON.
func (p *printer) id(s *bridgev1.Session) error {
	if !p.forPeople() {
		return p.document(s)
	}
	_, err := fmt.Fprintln(p.out, s.GetSessionId())
	return err
}

const resumeUsage = `Opens a session that is disconnected, stored or damaged, with its configuration, and prints its id.

  copilot-grpc sessions resume SESSION`

func setupResume(p *program, f *flags) action {
	c := p.connection(f)
	out := p.printer(f)
	return c.forSession(func(ctx context.Context, client *copilot.Client, id string) error {
		opened, err := client.Sessions().ResumeSession(ctx, &bridgev1.ResumeSessionRequest{
			RequestId: rand.Text(), SessionId: id, Config: &cliv1.SessionConfig{Streaming: proto.Bool(true)},
		})
		if err != nil {
			return err
		}
		return out.id(opened.GetSession())
	})
}

// forSession is an action with one argument, the id of a session.
func (c *connection) forSession(f func(ctx context.Context, client *copilot.Client, id string) error) action {
	return func(ctx context.Context, args []string) error {
		c.session = args[0]
		return c.with(ctx, func(client *copilot.Client) error { return f(ctx, client, args[0]) })
	}
}

// forSessions is an action with the ids of one or more sessions. After a failure it goes on with the next one.
func (c *connection) forSessions(f func(ctx context.Context, client *copilot.Client, id string) error) action {
	return func(ctx context.Context, args []string) error {
		client, err := c.dial(ctx)
		if err != nil {
			return err
		}
		defer client.Close()
		var failed error
		for _, id := range args {
			c.session = id
			if err := c.failed(ctx, client, f(ctx, client, id)); err != nil {
				failed = err
			}
		}
		return failed
	}
}

const sendUsage = `Sends a prompt to an open session and prints the message's id, without waiting for the answer.
While a turn runs, the prompt waits for its end. PROMPT can be "-" for stdin.

  copilot-grpc sessions send SESSION 'Now run the tests.'
  copilot-grpc events SESSION`

func setupSend(p *program, f *flags) action {
	c := p.connection(f)
	now := f.Bool("now", false, "steer the running turn instead of waiting for its end")
	return func(ctx context.Context, args []string) error {
		prompt, err := p.prompt(args[1])
		if err != nil {
			return err
		}
		var opts []copilot.SendOption
		if *now {
			opts = append(opts, copilot.Immediately())
		}
		c.session = args[0]
		return c.with(ctx, func(client *copilot.Client) error {
			sent, err := client.Session(args[0]).Send(ctx, prompt, opts...)
			if err != nil {
				return err
			}
			_, err = fmt.Fprintln(p.stdout, sent.GetMessageId())
			return err
		})
	}
}

// maxPrompt bounds what is read of stdin; servers have lower limits.
const maxPrompt = 64 << 20

// prompt is the prompt that an argument stands for: itself, or stdin for "-".
func (p *program) prompt(arg string) (string, error) {
	if arg == "-" {
		text, err := io.ReadAll(io.LimitReader(p.stdin, maxPrompt+1))
		switch {
		case err != nil:
			return "", fmt.Errorf("read the prompt: %w", err)
		case len(text) > maxPrompt:
			return "", fmt.Errorf("the prompt has more than %d bytes", maxPrompt)
		}
		arg = string(text)
	}
	if strings.TrimSpace(arg) == "" {
		return "", usageError{errors.New("the prompt is empty")}
	}
	return arg, nil
}

const abortUsage = `Aborts the turn that runs in a session.

  copilot-grpc sessions abort SESSION`

func setupAbort(p *program, f *flags) action {
	c := p.connection(f)
	return c.forSession(func(ctx context.Context, client *copilot.Client, id string) error {
		wasRunning, err := client.Session(id).Abort(ctx)
		if err != nil {
			return err
		}
		text := "no turn was running"
		if wasRunning {
			text = "aborted the turn"
		}
		_, err = fmt.Fprintln(p.stdout, text)
		return err
	})
}

const disconnectUsage = `Closes sessions: a running turn is aborted, and the history stays.
"copilot-grpc sessions resume" opens them again. A session that programs or people are attached to stays open unless
--force is set.

  copilot-grpc sessions disconnect SESSION`

func setupDisconnect(p *program, f *flags) action {
	c := p.connection(f)
	force := f.Bool("force", false, "disconnect also the programs and people that are attached")
	return c.forSessions(func(ctx context.Context, client *copilot.Client, id string) error {
		req := &bridgev1.DisconnectSessionRequest{SessionId: id, Force: *force}
		reply, err := client.Sessions().DisconnectSession(ctx, req)
		switch {
		case err != nil:
			return err
		case !reply.GetDisconnected():
			return fmt.Errorf("others are attached to the session %q: disconnect them as well with --force", id)
		}
		_, err = fmt.Fprintf(p.stdout, "disconnected %s\n", terminal.CleanLine(id))
		return err
	})
}

const deleteUsage = `Deletes sessions with their history, for good. "copilot-grpc sessions prune" deletes those that
have not been used for some time.

  copilot-grpc sessions delete SESSION`

func setupDelete(p *program, f *flags) action {
	c := p.connection(f)
	return c.forSessions(func(ctx context.Context, client *copilot.Client, id string) error {
		if err := client.DeleteSession(ctx, id); err != nil {
			return err
		}
		_, err := fmt.Fprintf(p.stdout, "deleted %s\n", terminal.CleanLine(id))
		return err
	})
}

const shareUsage = `Shares a session with another tenant of the server's policy, ends a share, or lists the shares.

  copilot-grpc sessions share SESSION acme --access participate
  copilot-grpc sessions share SESSION acme --remove
  copilot-grpc sessions share SESSION

The other tenant accepts with the name in the column NAME:

  copilot-grpc call SessionService/AcceptShare '{"sessionId":"OWNER/SESSION"}'`

var shareAccess = map[string]bridgev1.ShareAccess{
	"observe": bridgev1.ShareAccess_SHARE_ACCESS_OBSERVE, "participate": bridgev1.ShareAccess_SHARE_ACCESS_PARTICIPATE,
}

func setupShare(p *program, f *flags) action {
	c := p.connection(f)
	out := p.printer(f)
	access := "observe"
	f.Var(&choice{&access, []string{"observe", "participate"}}, "access",
		"`access` of the tenant: observe, or participate")
	remove := f.Bool("remove", false, "end the share with the tenant")
	return func(ctx context.Context, args []string) error {
		if *remove {
			if err := want(args, "SESSION", "TENANT"); err != nil {
				return err
			}
		}
		c.session = args[0]
		return c.with(ctx, func(client *copilot.Client) error {
			shares, err := share(ctx, client, args, shareAccess[access], *remove)
			if err != nil {
				return err
			}
			rows := table{columns: []column{{head: "TENANT"}, {head: "ACCESS"}, {head: "STATE"}, {head: "NAME"}}}
			for _, one := range shares {
				rows.add(one, one.GetTenant(), enumText(one.GetAccess(), "SHARE_ACCESS_"),
					enumText(one.GetState(), "SHARE_STATE_"), one.GetSessionId())
			}
			return out.print(rows)
		})
	}
}

// share shares a session with the tenant in args, or ends that, and returns the session's shares.
func share(
	ctx context.Context, client *copilot.Client, args []string, access bridgev1.ShareAccess, remove bool,
) ([]*bridgev1.SessionShare, error) {
	switch {
	case len(args) == 1:
		s, err := client.GetSession(ctx, args[0])
		if err != nil {
			return nil, err
		}
		return s.Proto.GetShares(), nil
	case remove:
		req := &bridgev1.UnshareSessionRequest{SessionId: args[0], Tenant: args[1]}
		reply, err := client.Sessions().UnshareSession(ctx, req)
		return reply.GetShares(), err
	}
	reply, err := client.Sessions().ShareSession(ctx, &bridgev1.ShareSessionRequest{
		SessionId: args[0], Tenant: args[1], Access: access,
	})
	return reply.GetShares(), err
}
