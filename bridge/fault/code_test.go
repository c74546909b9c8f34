package fault_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"

	"google.golang.org/genproto/googleapis/rpc/code"

	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
)

// documented reads the code that error.proto gives to each reason: the word before the
// colon of the comment above it.
func documented(t *testing.T) map[string]string {
	t.Helper()
	file, err := os.Open("../../proto/copilot/bridge/v1/error.proto")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	comment := regexp.MustCompile(`^  // ([A-Z_]+): `)
	value := regexp.MustCompile(`^  (ERROR_REASON_[A-Z_]+) = \d+;`)
	found, last := map[string]string{}, ""
	for lines := bufio.NewScanner(file); lines.Scan(); {
		if m := comment.FindStringSubmatch(lines.Text()); m != nil {
			last = m[1]
		}
		if m := value.FindStringSubmatch(lines.Text()); m != nil {
			found[m[1]], last = last, ""
		}
	}
	return found
}

// The table, the enum and the comments of the contract are one thing.
func TestCodeIsTheDocumentedOne(t *testing.T) {
	t.Parallel()
	doc := documented(t)
	values := bridgev1.ErrorReason(0).Descriptor().Values()
	for i := range values.Len() {
		v := values.Get(i)
		if v.Number() == 0 {
			continue
		}
		name := string(v.Name())
		got, ok := fault.Code(bridgev1.ErrorReason(v.Number()))
		if !ok {
			t.Errorf("%s has no code", name)
			continue
		}
		if want := doc[name]; code.Code(got).String() != want {
			t.Errorf("%s: code %v, documented as %q", name, code.Code(got), want)
		}
	}
}

func TestCodeRefusesTheUnspecified(t *testing.T) {
	t.Parallel()
	for _, r := range []fault.Reason{0, -1, 1 << 20} {
		if _, ok := fault.Code(r); ok {
			t.Errorf("%v counts as a public reason", r)
		}
	}
}

func TestPublic(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		err  error
		want fault.Reason
		told bool
	}{
		"fault":           {fault.New(fault.SessionBusy, "busy"), fault.SessionBusy, true},
		"wrapped":         {fmt.Errorf("send: %w", fault.New(fault.SessionBusy, "busy")), fault.SessionBusy, true},
		"cancelled":       {fmt.Errorf("wait: %w", context.Canceled), fault.Cancelled, true},
		"deadline":        {context.DeadlineExceeded, fault.Timeout, true},
		"fault wins":      {fault.Wrap(context.Canceled, fault.RuntimeLost, "gone"), fault.RuntimeLost, true},
		"unknown reason":  {fault.New(1<<20, "secret"), fault.Internal, false},
		"any other error": {errors.New("secret"), fault.Internal, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f, told := fault.Public(tc.err)
			if f.Reason != tc.want || told != tc.told {
				t.Errorf("Public = %s, %t; want %s, %t", f.Reason, told, tc.want, tc.told)
			}
			if strings.Contains(f.Message, "secret") {
				t.Errorf("message %q tells what only the log may know", f.Message)
			}
		})
	}
}

func TestFailure(t *testing.T) {
	t.Parallel()
	f, told := fault.Failure(fault.New(fault.ToolNameConflict, "tool %q is taken", "t").WithField("tools[0]").With("session_id", "s"))
	if !told || f.GetCode() != int32(code.Code_ALREADY_EXISTS) ||
		f.GetReason() != bridgev1.ErrorReason_ERROR_REASON_TOOL_NAME_CONFLICT ||
		f.GetMessage() != `tool "t" is taken` || f.GetField() != "tools[0]" || f.GetMetadata()["session_id"] != "s" {
		t.Errorf("Failure = %v, %t", f, told)
	}
}

// A status that its receiver refuses for its size, or that cannot be encoded, tells nothing.
func TestPublicFitsIntoTrailers(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("ä", 1<<14)
	f, _ := fault.Public(fault.New(fault.CLIStartFailed, "%s", long+"\xff").
		With("stderr", long+"the end").With("rpc_message", long).With("session_id", "s1"))
	total := 0
	for k, v := range f.Metadata {
		total += len(v)
		if !utf8.ValidString(v) {
			t.Errorf("metadata %q is not valid UTF-8", k)
		}
	}
	if len(f.Message) > 1<<10 || !utf8.ValidString(f.Message) || total > 2<<10 {
		t.Errorf("message of %d bytes, metadata of %d", len(f.Message), total)
	}
	if f.Metadata["session_id"] != "s1" {
		t.Errorf("session_id = %q", f.Metadata["session_id"])
	}
	only, _ := fault.Public(fault.New(fault.CLIStartFailed, "x").With("stderr", long+"the end"))
	if !strings.HasSuffix(only.Metadata["stderr"], "the end") {
		t.Error("the end of stderr was cut off")
	}
}
