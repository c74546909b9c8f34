package shell

import (
	"encoding/json"
	"sync"

	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
)

const (
	// maxOutputBytes bounds the unread output of a command. Output beyond it is dropped, and its caller
	// receives the dropped size: a slow caller must not block the CLI's connection, which all callers share.
	maxOutputBytes = 1 << 20
	// maxUnclaimed bounds the commands whose output no caller reads yet because the reply to their start is
	// still under way. Beyond it the oldest is dropped.
	maxUnclaimed = 16
	// pieceOverhead is what a piece of output costs besides its text.
	pieceOverhead = 64
)

// The notifications about commands that a Table takes.
const (
	Output = "shell.output"
	Exit   = "shell.exit"
)

// Table has the commands of one runtime, by process id. Their output may arrive before the reply
// that says the id. The zero value is empty and ready for use. It is safe for concurrent use.
type Table struct {
	mu        sync.Mutex
	byID      map[string]*command
	unclaimed []string
	lost      error
}

// command is one command.
type command struct {
	changed chan struct{} // has a value when something came

	mu      sync.Mutex
	pieces  []*bridgev1.RunShellResponse
	size    int
	dropped int64
	over    bool
	err     error // why it is over without an exit code
}

// get returns a command. With claim, the command is no longer subject to maxUnclaimed.
func (s *Table) get(id string, claim bool) *command {
	s.mu.Lock()
	defer s.mu.Unlock()
	sh := s.byID[id]
	if sh == nil {
		sh = &command{changed: make(chan struct{}, 1), err: s.lost, over: s.lost != nil}
		if s.byID == nil {
			s.byID = map[string]*command{}
		}
		s.byID[id] = sh
		s.unclaimed = append(s.unclaimed, id)
	}
	if claim {
		s.unclaimed = without(s.unclaimed, id)
	}
	if len(s.unclaimed) > maxUnclaimed {
		delete(s.byID, s.unclaimed[0])
		s.unclaimed = s.unclaimed[1:]
	}
	return sh
}

func without(list []string, one string) []string {
	for i, s := range list {
		if s == one {
			return append(list[:i:i], list[i+1:]...)
		}
	}
	return list
}

func (s *Table) forget(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.byID, id)
}

// Take takes a notification. It runs on the connection's reader and does not block.
func (s *Table) Take(method string, params []byte) {
	var p struct {
		ProcessID, Stream, Data string
		ExitCode                int64
	}
	if json.Unmarshal(params, &p) != nil || p.ProcessID == "" {
		return
	}
	sh, size := s.get(p.ProcessID, false), len(p.Data)+pieceOverhead
	switch {
	case method == Exit:
		sh.add(&bridgev1.RunShellResponse{Frame: &bridgev1.RunShellResponse_ExitCode{ExitCode: p.ExitCode}}, 0)
	case p.Stream == "stderr":
		sh.add(&bridgev1.RunShellResponse{Frame: &bridgev1.RunShellResponse_Stderr{Stderr: p.Data}}, size)
	default:
		sh.add(&bridgev1.RunShellResponse{Frame: &bridgev1.RunShellResponse_Stdout{Stdout: p.Data}}, size)
	}
}

// End ends all commands: their runtime has ended, with the cause.
func (s *Table) End(cause error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lost = fault.Wrap(cause, fault.RuntimeLost, "the runtime ended while a command ran")
	for _, sh := range s.byID {
		sh.fail(s.lost)
	}
}

// add adds a piece of output of a size, or without one the exit.
func (sh *command) add(piece *bridgev1.RunShellResponse, size int) {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	switch {
	case sh.over:
		return
	case sh.size+size > maxOutputBytes:
		sh.dropped += int64(size - pieceOverhead)
		return
	}
	if sh.dropped > 0 {
		lost := &bridgev1.RunShellResponse_LostBytes{LostBytes: sh.dropped}
		sh.pieces = append(sh.pieces, &bridgev1.RunShellResponse{Frame: lost})
		sh.dropped = 0
	}
	sh.pieces, sh.size, sh.over = append(sh.pieces, piece), sh.size+size, size == 0
	sh.wake()
}

func (sh *command) fail(err error) {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	if !sh.over {
		sh.over, sh.err = true, err
		sh.wake()
	}
}

func (sh *command) wake() {
	select {
	case sh.changed <- struct{}{}:
	default:
	}
}

// drain takes what has come.
func (sh *command) drain() (pieces []*bridgev1.RunShellResponse, over bool, err error) {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	pieces, sh.pieces, sh.size = sh.pieces, nil, 0
	return pieces, sh.over, sh.err
}
