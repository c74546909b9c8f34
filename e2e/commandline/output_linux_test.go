package commandline

import (
	"strings"
	"testing"

	"github.com/copilot-grpc/copilot-grpc/e2e/harness"
)

// Each command that prints says in one line that the disk is full, and nothing if its reader has closed the pipe.
func TestOutputOfCommands(t *testing.T) {
	t.Parallel()
	harness.SkipWithoutCLI(t)
	p := newPerson(t)
	if out, errs, code := p.types("copilot-grpc sessions create --id one && copilot-grpc run Hello --session one"); code != 0 {
		t.Fatalf("%s%s", out, errs)
	}
	for _, command := range []string{
		"run Hello", "run Hello -o json", "run Hello -o jsonl", "sessions list", "sessions show one", "sessions abort one",
		"sessions create", "sessions resume one", "sessions send one Hello", "sessions share one", "sessions export one --output -",
		"events one --no-follow", "events one --no-follow -o json", "events one --no-follow --raw",
		"inbox", "chat --plain one < /dev/null", "server", "usage", "usage one -o json", "runtimes list", "top --once",
		"context list", "call Ping", "call", "describe", "describe Run", "doctor --offline-model default", "version", "help",
		"help run", "completion bash", "sessions list --watch",
	} {
		t.Run(command, func(t *testing.T) {
			t.Parallel()
			words, input, _ := strings.Cut(command, " <")
			if input != "" {
				input = " <" + input
			}
			_, errs, code := p.types("copilot-grpc " + words + input + " > /dev/full")
			if found := strings.Count(errs, ": write the output: no space left on device\n"); code != 1 || found != 1 {
				t.Errorf("on a full disk: code %d\n%s", code, errs)
			}
			_, errs, _ = p.types("copilot-grpc " + words + input + " | true")
			if strings.Contains(errs, "pipe") || strings.Contains(errs, "output") {
				t.Errorf("after the reader has gone: %s", errs)
			}
		})
	}
}
