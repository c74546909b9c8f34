package shell

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
)

func output(id, stream, data string) []byte {
	return fmt.Appendf(nil, `{"processId":%q,"stream":%q,"data":%q}`, id, stream, data)
}

func shellFrames(pieces []*bridgev1.RunShellResponse) string {
	var all []string
	for _, p := range pieces {
		switch f := p.GetFrame().(type) {
		case *bridgev1.RunShellResponse_Stdout:
			all = append(all, "out "+f.Stdout)
		case *bridgev1.RunShellResponse_Stderr:
			all = append(all, "err "+f.Stderr)
		case *bridgev1.RunShellResponse_LostBytes:
			all = append(all, fmt.Sprint("lost ", f.LostBytes))
		case *bridgev1.RunShellResponse_ExitCode:
			all = append(all, fmt.Sprint("exit ", f.ExitCode))
		}
	}
	return strings.Join(all, ", ")
}

// Output finds its command by the process id, also when it comes before the id is known.
func TestShellOutput(t *testing.T) {
	t.Parallel()
	var s Table
	s.Take(Output, output("early", "stdout", "a"))
	s.Take(Output, output("other", "stdout", "x"))
	sh := s.get("early", true)
	s.Take(Output, output("early", "stderr", "b"))
	s.Take(Exit, []byte(`{"processId":"early","exitCode":3}`))
	s.Take(Output, output("early", "stdout", "after the end"))
	s.Take(Output, []byte(`{"data":"nobody's"}`))
	pieces, over, err := sh.drain()
	if got := shellFrames(pieces); got != "out a, err b, exit 3" || !over || err != nil {
		t.Errorf("%s, over %v, %v", got, over, err)
	}
	if pieces, over, _ := s.get("other", true).drain(); shellFrames(pieces) != "out x" || over {
		t.Errorf("the other command: %s, over %v", shellFrames(pieces), over)
	}
}

// Unread output beyond the bound is dropped, and the caller receives its size.
func TestShellOutputIsBounded(t *testing.T) {
	t.Parallel()
	var s Table
	sh := s.get("1", true)
	piece := strings.Repeat("x", maxOutputBytes/4-pieceOverhead)
	for range 6 {
		s.Take(Output, output("1", "stdout", piece))
	}
	pieces, _, _ := sh.drain()
	if len(pieces) != 4 {
		t.Fatalf("%d pieces are kept, want 4", len(pieces))
	}
	s.Take(Output, output("1", "stdout", "again"))
	s.Take(Exit, []byte(`{"processId":"1","exitCode":0}`))
	pieces, _, _ = sh.drain()
	if got, want := shellFrames(pieces), fmt.Sprintf("lost %d, out again, exit 0", 2*len(piece)); got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

// Unclaimed commands are dropped, the oldest first.
func TestUnclaimedShellsAreBounded(t *testing.T) {
	t.Parallel()
	var s Table
	kept := s.get("kept", true)
	for i := range maxUnclaimed + 3 {
		s.Take(Output, output(fmt.Sprint(i), "stdout", "x"))
	}
	if len(s.byID) != maxUnclaimed+1 || s.byID["2"] != nil || s.byID["3"] == nil || s.byID["kept"] != kept {
		t.Errorf("%d commands are kept", len(s.byID))
	}
}

func TestShellsEndWithTheirRuntime(t *testing.T) {
	t.Parallel()
	var s Table
	sh, done := s.get("1", true), s.get("2", true)
	s.Take(Exit, []byte(`{"processId":"2","exitCode":0}`))
	s.End(errors.New("killed"))
	if _, over, err := sh.drain(); !over || fault.ReasonOf(err) != fault.RuntimeLost {
		t.Errorf("over %v, %v", over, err)
	}
	if _, over, err := done.drain(); !over || err != nil {
		t.Errorf("one that had ended: over %v, %v", over, err)
	}
	if _, over, err := s.get("late", true).drain(); !over || fault.ReasonOf(err) != fault.RuntimeLost {
		t.Errorf("one that came too late: over %v, %v", over, err)
	}
}
