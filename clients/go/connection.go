package copilot

import (
	"fmt"
	"log/slog"
	"runtime/debug"
	"sync"

	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
)

// ConnectionState is what happened to a participant's connection.
type ConnectionState int

const (
	// ConnectionBroken: the stream broke. The client reconnects.
	ConnectionBroken ConnectionState = iota + 1
	// ConnectionRestored: the stream is open again, with the same participation.
	ConnectionRestored
	// ParticipantExpired: the grace time was over. The participant has joined anew, and
	// callbacks in between got the server's default answers.
	ParticipantExpired
	// RuntimeRestarted: the session's CLI process ended and was replaced.
	RuntimeRestarted
)

// String is the state in words.
func (s ConnectionState) String() string {
	switch s {
	case ConnectionBroken:
		return "broken"
	case ConnectionRestored:
		return "restored"
	case ParticipantExpired:
		return "participant expired"
	case RuntimeRestarted:
		return "runtime restarted"
	default:
		return fmt.Sprintf("ConnectionState(%d)", int(s))
	}
}

// ConnectionChange is a change of a participant's connection.
type ConnectionChange struct {
	// The new state.
	State ConnectionState
	// ConnectionBroken: the reason.
	Err error
	// RuntimeRestarted: the turn that ended with the process; nil if none was running.
	TurnOutcome *bridgev1.TurnOutcome
}

// notifier calls a program's function with one change after another. Its callers do not
// wait for the function.
type notifier struct {
	call func(ConnectionChange)
	log  *slog.Logger

	mu      sync.Mutex
	queue   []ConnectionChange
	running bool
}

// notify adds a change. A goroutine that ends with the queue calls the function.
func (n *notifier) notify(c ConnectionChange) {
	if n.call == nil {
		return
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.queue = append(n.queue, c)
	if !n.running {
		n.running = true
		go n.drain()
	}
}

func (n *notifier) drain() {
	for {
		n.mu.Lock()
		if len(n.queue) == 0 {
			n.running = false
			n.mu.Unlock()
			return
		}
		next := n.queue[0]
		n.queue = n.queue[1:]
		n.mu.Unlock()
		n.callOnce(next)
	}
}

func (n *notifier) callOnce(c ConnectionChange) {
	defer func() {
		if r := recover(); r != nil {
			n.log.Error("connection handler panicked", "panic", fmt.Sprint(r), "stack", string(debug.Stack()))
		}
	}()
	n.call(c)
}
