package chat

import (
	"context"
	"errors"
	"slices"
	"sync"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	copilot "github.com/copilot-grpc/copilot-grpc/clients/go"
	"github.com/copilot-grpc/copilot-grpc/clients/go/view"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
	cliv1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/cli/v1"
)

// Options is how a chat opens its session. The zero value is a new session with the server's defaults.
type Options struct {
	// The session to come back to; empty for a new one.
	SessionID string
	// New sessions only: the model and the agent's working directory; empty for the server's.
	Model, Directory string
	// Name of the person, for others in the session.
	Name string
	// Files of this machine that the first prompt has.
	Files []string
	// StateDir returns the directory in which inputs are kept for later chats.
	StateDir func() (string, error)
	// Command returns the command line that comes back to a session.
	Command func(sessionID string) string
}

// Link is a person's part in a session, over the Go library.
//
// Two streams belong to it. On the Attach stream the person is a participant, so that callbacks wait for them; on the
// event stream the session's frames arrive, which are reduced to a view at once. What nobody has taken yet is one
// update: a terminal that is slow skips views, and of more than maxPending notes or ends of callbacks it gets the newest
// and the number of the others.
type Link struct {
	client  *copilot.Client
	session *copilot.Session
	options Options
	inputs  *inputsFile
	stop    context.CancelFunc
	ended   chan struct{}

	changed chan struct{}
	mu      sync.Mutex
	next    Update
}

// Open creates the session, joins it, or loads it. ctx bounds the call alone.
func Open(ctx context.Context, client *copilot.Client, o Options) (*Link, error) {
	l := &Link{client: client, options: o, inputs: newInputsFile(o.StateDir()), changed: make(chan struct{}, 1), ended: make(chan struct{})}
	var err error
	if o.SessionID == "" {
		l.session, err = client.CreateSession(ctx, l.creating(o))
	} else {
		l.session, err = client.JoinSession(ctx, o.SessionID, l.participant(o))
		if copilot.IsReason(err, copilot.ReasonSessionNotFound) { // not in memory
			resuming := l.participant(o)
			resuming.ContinuePendingWork = true
			loaded, failure := client.ResumeSession(ctx, o.SessionID, resuming)
			if !copilot.IsReason(failure, copilot.ReasonSessionNotFound) { // else the first error is the clearer one
				l.session, err = loaded, failure
			}
		}
	}
	if err != nil {
		return nil, err
	}
	follow, stop := context.WithCancel(context.WithoutCancel(ctx))
	l.stop = stop
	go l.follow(follow)
	return l, nil
}

// answeredByPeople are the callbacks that a person answers in a chat.
var answeredByPeople = []bridgev1.CallbackKind{
	bridgev1.CallbackKind_CALLBACK_KIND_PERMISSION, bridgev1.CallbackKind_CALLBACK_KIND_USER_INPUT,
	bridgev1.CallbackKind_CALLBACK_KIND_ELICITATION, bridgev1.CallbackKind_CALLBACK_KIND_EXIT_PLAN_MODE,
	bridgev1.CallbackKind_CALLBACK_KIND_AUTO_MODE_SWITCH, bridgev1.CallbackKind_CALLBACK_KIND_INSTALLATION_CONFIRM,
}

// creating are the options of a new session. The session itself handles questions, so that they wait while this person
// is away.
func (l *Link) creating(o Options) copilot.SessionOptions {
	opts := l.participant(o)
	opts.SessionHandlers = &bridgev1.Handlers{Kinds: answeredByPeople}
	config := &cliv1.SessionConfig{EnableFileChangeTracking: proto.Bool(true)} // for /files
	if o.Model != "" {
		config.Model = &o.Model
	}
	if o.Directory != "" {
		config.WorkingDirectory = &o.Directory
	}
	opts.Config = config
	return opts
}

// participant makes the callbacks of people wait. Each is answered by Resolve, once a person has decided.
func (l *Link) participant(o Options) copilot.SessionOptions {
	return copilot.SessionOptions{
		Name:                  o.Name,
		OnPermission:          wait[*copilot.PermissionRequest, *copilot.Decision],
		OnUserInput:           wait[*copilot.UserInputRequest, *copilot.UserInputAnswer],
		OnElicitation:         wait[*copilot.ElicitationRequest, *copilot.ElicitationAnswer],
		OnExitPlanMode:        wait[*copilot.ExitPlanModeRequest, *copilot.ExitPlanModeAnswer],
		OnAutoModeSwitch:      wait[*copilot.AutoModeSwitchRequest, *copilot.AutoModeSwitchAnswer],
		OnInstallationConfirm: wait[*copilot.InstallationConfirmRequest, *copilot.InstallationConfirmAnswer],
		OnConnection:          l.connection,
	}
}

// wait is a handler that leaves the answer to Resolve.
func wait[Request, Answer any](ctx context.Context, _ Request) (none Answer, err error) {
	<-ctx.Done()
	return none, copilot.ErrAbstain
}

func (l *Link) SessionID() string { return l.session.ID() }

// connection tells of a broken connection, and of its end.
func (l *Link) connection(change copilot.ConnectionChange) {
	switch change.State {
	case copilot.ConnectionBroken:
		l.tell(view.Warning, "The connection to the server is lost. Trying again …")
	case copilot.ConnectionRestored:
		l.tell(view.Info, "The connection is back.")
		l.put(func(u *Update) { u.Restored = true })
	case copilot.ParticipantExpired:
		l.tell(view.Warning, "The connection is back. Questions in between may have got their safe defaults.")
		l.put(func(u *Update) { u.Restored = true })
	}
}

// follow reduces the session's frames until ctx ends, or the frames do.
func (l *Link) follow(ctx context.Context) {
	defer close(l.ended)
	var v view.View
	for frame, err := range l.session.Frames(ctx, copilot.FromBeginning(), copilot.WithCallbacks()) {
		if err != nil {
			if failure := (*copilot.Error)(nil); errors.As(err, &failure) && failure.Code == codes.Unavailable {
				l.put(func(u *Update) { u.Lost = err })
			} else if ctx.Err() == nil {
				l.tell(view.Error, "The session can no longer be followed: "+words(err))
				v.Closed = bridgev1.CloseReason_CLOSE_REASON_DISCONNECTED
				l.put(func(u *Update) { u.View = v })
			}
			return
		}
		v = view.Reduce(v, frame)
		l.put(func(u *Update) {
			u.View = v
			if ended := frame.GetCallbackResolved(); ended != nil {
				u.Resolved = newest(u, u.Resolved, ended)
			}
		})
	}
}

func (l *Link) tell(level view.Level, text string) {
	l.put(func(u *Update) { u.Notes = newest(u, u.Notes, Note{Level: level, Text: text}) })
}

// newest appends to a list of an update, which loses its oldest element if it is full.
func newest[T any](u *Update, list []T, next T) []T {
	if len(list) >= maxPending {
		list = slices.Delete(list, 0, 1)
		u.LeftOut++
	}
	return append(list, next)
}

// put changes the update that will be taken next.
func (l *Link) put(change func(*Update)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	change(&l.next)
	select {
	case l.changed <- struct{}{}:
	default:
	}
}

// Changed receives a value when Latest has something new.
func (l *Link) Changed() <-chan struct{} { return l.changed }

// Latest takes what happened since it was called last.
func (l *Link) Latest() Update {
	l.mu.Lock()
	defer l.mu.Unlock()
	u := l.next
	l.next = Update{View: u.View}
	return u
}

func (l *Link) Do(ctx context.Context, e Effect) Result {
	r := e.run(ctx, l)
	r.Effect = e
	return r
}

// Close leaves the session, which goes on.
func (l *Link) Close() error {
	l.stop()
	<-l.ended
	return l.session.Close()
}

// words is an error for a person.
func words(err error) string {
	var e *copilot.Error
	if errors.As(err, &e) && e.Message != "" {
		return e.Message
	}
	return err.Error()
}
