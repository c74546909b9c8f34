// Package sending sends the messages of one session to the CLI: in order, with the session's
// prompts kept in the outbox, with headers that replace the provider's, and with an answer for
// each message whose runtime ended before it replied.
//
// The session's lock guards the one field of a Sender that changes. A method says when its caller
// holds the lock. prompts.Queue lets one send at a time begin; a Sender holds it until the CLI has
// replied, or until the turn has ended whose headers replace the provider's.
//
// Config.Go starts a goroutine for each such turn, which ends with the turn, the runtime or the bridge, and one for each
// message that has to wait before the CLI can have it, which ends when the CLI has it, or with its caller or the bridge.
package sending

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
	"github.com/copilot-grpc/copilot-grpc/bridge/journal"
	"github.com/copilot-grpc/copilot-grpc/bridge/jsonobj"
	"github.com/copilot-grpc/copilot-grpc/bridge/rpcconn"
	"github.com/copilot-grpc/copilot-grpc/bridge/session/prompts"
	"github.com/copilot-grpc/copilot-grpc/bridge/session/turns"
)

// Runtime is a CLI process that has the session loaded.
type Runtime interface {
	// Call makes a JSON-RPC call.
	Call(ctx context.Context, method string, params []byte, opts ...rpcconn.CallOption) (json.RawMessage, error)
	// Start makes a call for the caller in ctx, whose end does not end the call. It behaves as rpcconn.Conn.Start.
	Start(ctx context.Context, method string, params []byte, limit time.Duration, done func(json.RawMessage, error),
		opts ...rpcconn.CallOption) error
	// Ended is closed when the process has ended and the session knows it.
	Ended() <-chan struct{}
	// Version is the CLI's version.
	Version() string
}

// Config is what a Sender needs of its session.
type Config struct {
	// Session is the session's id.
	Session string
	Journal *journal.Journal
	// Lock is the session's lock; Tx is the session, used with the lock held.
	Lock    sync.Locker
	Tx      prompts.Tx
	Turns   *turns.Turns
	Prompts *prompts.Queue
	// In calls f with the runtime that has the session, loading it if need be, and once more if
	// the session was lost before the call reached it.
	In func(ctx context.Context, f func(rt Runtime) error) error
	// Loaded returns the runtime that has the session, which keeps it until release is called; nil if no runtime can
	// take a message at once.
	Loaded func() (rt Runtime, release func())
	// Moved reports whether a call failed because the runtime no longer has the session, so that it can be made again.
	Moved func(ctx context.Context, rt Runtime, err error) bool
	// Load has the session loaded.
	Load func(ctx context.Context) error
	// Abortable reports whether the CLI has something to abort, after it has waited for a load in progress.
	Abortable func(ctx context.Context) (bool, error)
	// Abort has the CLI end the turn and what is queued. It returns the CLI's result and the journal's end when the CLI
	// replied.
	Abort func(ctx context.Context, params jsonobj.Object) (result json.RawMessage, at journal.Position, err error)
	// Unloaded reports whether the session is in use and no runtime has it.
	Unloaded func() bool
	// HasHeaders reports whether the session's provider has headers.
	HasHeaders func() bool
	// Reconfigure calls set and then gives a runtime the session's whole configuration, while
	// nothing else changes the session in the runtime.
	Reconfigure func(ctx context.Context, rt Runtime, set func()) error
	// Classify turns an error of a call, or of an ended context, into the API's.
	Classify func(err error, method string) error
	// Go runs f on a goroutine that ends with the bridge.
	Go func(f func(ctx context.Context)) bool
	// Spawn runs f on another goroutine, also while the bridge ends.
	Spawn  func(f func())
	Logger func() *slog.Logger
}

// Sender sends the messages of a session. New makes one.
type Sender struct {
	cfg Config
	// replacedIn is the runtime in which a turn runs whose headers replace the provider's; nil
	// without such a turn. The session's lock guards it.
	replacedIn Runtime
}

// New returns a sender.
func New(cfg Config) *Sender { return &Sender{cfg: cfg} }

// storagePatience is how long a message waits for storage across a network that does not take the session's events.
const storagePatience = 2 * time.Second

// methodSend is the CLI's method for a message.
const methodSend = "session.send"

// errUnanswered is the cause with which the waiting for the CLI's answer to a message ends.
var errUnanswered = errors.New("the CLI does not answer")

// unavailable is the error of a message that cannot be stored now.
func unavailable(cause error) error {
	return fault.Wrap(cause, fault.SessionUnavailable, "the storage does not take the session's messages now").
		WithRetry(time.Second)
}

// forget ends the waiting for a message whose sender learns that it failed.
func (s *Sender) forget(w *turns.Waiter) {
	w.Close()
	s.cfg.Lock.Lock()
	s.cfg.Prompts.Forget(s.cfg.Tx, w.State())
	s.cfg.Lock.Unlock()
}

// unanswered is the error of a message to which the CLI did not reply.
func (s *Sender) unanswered(method string, bound time.Duration) error {
	s.cfg.Logger().Error("the CLI did not reply to a message",
		"session_id", s.cfg.Session, "method", method, "waited", bound)
	return fault.Wrap(errors.Join(ErrUnsettled, errUnanswered), fault.SendUnconfirmed,
		"no reply to %s within %v: the CLI may have accepted the message", method, bound)
}

// Abort stops the running turn and what is queued, and reports whether one was running.
func (s *Sender) Abort(ctx context.Context) (bool, journal.Position, error) {
	out, err := s.AbortWith(ctx, nil)
	return out.Running, out.At, err
}

// Aborted is the result of an abort.
type Aborted struct {
	// Running reports that there was a turn, or a prompt, to end.
	Running bool
	// Result is the CLI's result; nil if no runtime has the session.
	Result json.RawMessage
	// At is the journal's end when the CLI replied.
	At journal.Position
}

// AbortWith is Abort with parameters of session.abort.
func (s *Sender) AbortWith(ctx context.Context, params jsonobj.Object) (out Aborted, err error) {
	given := s.cfg.Prompts.Acknowledged()
	loaded, err := s.cfg.Abortable(ctx)
	switch {
	case err != nil:
		return out, err
	case !loaded:
		return Aborted{Running: s.cfg.Prompts.Abort(given), At: s.cfg.Journal.Last()}, nil
	}
	running := s.cfg.Turns.Running()
	result, at, err := s.cfg.Abort(ctx, params)
	if err != nil {
		return Aborted{Running: running, At: at}, err
	}
	s.cfg.Prompts.Abort(given)
	return Aborted{running, result, at}, nil
}

// Repeat returns what has become of a message that the CLI accepted. It fails with SEND_UNCONFIRMED
// if the message is not part of the conversation. Where only the history can show that, the session
// is loaded.
func (s *Sender) Repeat(ctx context.Context, id string) (Repeated, error) {
	if id == "" {
		return Repeated{}, nil
	}
	box := s.cfg.Prompts.Box()
	if s.cfg.Unloaded() && box.Pending(id) {
		if err := s.cfg.Load(ctx); err != nil {
			return Repeated{}, fault.Wrap(err, fault.SendUnconfirmed,
				"the runtime ended, and the session cannot be loaded to find out whether the CLI accepted the message").With("message_id", id)
		}
	}
	if why, ok := box.LostBecause(id); ok {
		return Repeated{}, prompts.LostError([]string{id}, why)
	}
	s.cfg.Lock.Lock()
	defer s.cfg.Lock.Unlock()
	if err := s.cfg.Turns.Machine().LostMessage(id); err != nil {
		return Repeated{}, err
	}
	out := Repeated{ResentID: box.MovedTo(id)}
	if w := s.cfg.Prompts.Restored(s.cfg.Tx, id); w != nil {
		out.Waiter = s.cfg.Turns.Waiter(w)
	}
	return out, nil
}
