package runtime

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/copilot-grpc/copilot-grpc/bridge/runtime/clibin"
	copilot "github.com/copilot-grpc/copilot-grpc/clients/go"
	"github.com/copilot-grpc/copilot-grpc/e2e/harness"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
	"github.com/copilot-grpc/copilot-grpc/internal/app"
)

const (
	// newerEnv makes this test binary the CLI that the variable names, with newerVersion in place of its own version.
	newerEnv     = "E2E_NEWER_CLI"
	newerVersion = "1.0.106"
)

func init() {
	if cli := os.Getenv(newerEnv); cli != "" {
		os.Exit(playNewer(cli))
	}
}

// playNewer runs a CLI and changes the version in its first message. Both versions have the same length, so that frames
// keep theirs.
func playNewer(cli string) int {
	cmd := exec.Command(cli, os.Args[1:]...)
	cmd.Stdin, cmd.Stderr = os.Stdin, os.Stderr
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	first := make([]byte, 64<<10)
	if n, err := out.Read(first); err == nil {
		own, newer := []byte(`"version":"1.0.102"`), []byte(`"version":"`+newerVersion+`"`)
		_, _ = os.Stdout.Write(bytes.ReplaceAll(first[:n], own, newer))
		_, _ = io.Copy(os.Stdout, out)
	}
	_ = cmd.Wait()
	return max(cmd.ProcessState.ExitCode(), 0)
}

// TestNewerCLIOnPath has a CLI on PATH that is newer than every tested version: sessions work, with a tool and a
// permission, and GetServerInfo warns. With --tested-cli-only it is refused.
func TestNewerCLIOnPath(t *testing.T) {
	real, err := filepath.EvalSymlinks(os.Getenv(harness.CLIEnv))
	if err != nil {
		t.Skipf("NOT RUN: %v", err)
	}
	if cli := os.Getenv(harness.CLIEnv); !strings.Contains(cli, "/"+clibin.PinnedVersion+"/") {
		t.Skipf("the test changes the version of CLI %s, not of %s", clibin.PinnedVersion, cli)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	newer := executable(t, fmt.Sprintf("[ \"$1\" = --version ] && { echo 'GitHub Copilot CLI %s.'; exit 0; }\n%s='%s' exec '%s' \"$@\"",
		newerVersion, newerEnv, real, self))
	found := func(c *app.Config) {
		c.CLIPath = ""
		t.Setenv(harness.CLIEnv, "")
		t.Setenv("PATH", filepath.Dir(newer)+string(os.PathListSeparator)+os.Getenv("PATH"))
	}
	r := harness.NewOwnFixture(t, `
rules:
  - when: {user: "Say it"}
    reply: [{tool_call: {name: shout, arguments: {}}}]
  - when: {tool_result: {name: shout}}
    reply: [{text: "It said: {{tool_result}}"}]
default: {reply: [{text: "ok"}]}`, harness.HostConfig{Change: found})
	opts := r.Options()
	opts.Tools = []copilot.Tool{copilot.NewTool("shout", "Shouts",
		func(context.Context, struct{}) (string, error) { return "HELLO", nil })}
	asked := make(chan string, 10)
	opts.OnPermission = func(ctx context.Context, req *copilot.PermissionRequest) (*copilot.Decision, error) {
		asked <- req.Kind
		return copilot.ApproveAll(ctx, req)
	}
	if got := r.Session(opts).Ask("Say it"); !strings.Contains(got, "HELLO") {
		t.Errorf("the agent says %q", got)
	}
	if len(asked) != 1 || <-asked != "custom-tool" {
		t.Errorf("leave was asked for otherwise")
	}
	info, err := r.Client.ServerInfo(r.Ctx)
	if err != nil || info.GetCliVersion() != newerVersion || len(info.GetCliWarnings()) != 1 ||
		!strings.Contains(info.GetCliWarnings()[0], "newer than") {
		t.Errorf("GetServerInfo has %v, %v", info, err)
	}
	t.Setenv(harness.CLIEnv, newer)
	c := clientOf(t, r.Ctx, newer, func(c *app.Config) { c.TestedCLIOnly = true })
	_, err = c.Runtimes().Ping(r.Ctx, &bridgev1.PingRequest{})
	if e, ok := errors.AsType[*copilot.Error](copilot.FromError(err)); !ok ||
		e.Reason != bridgev1.ErrorReason_ERROR_REASON_CLI_UNSUPPORTED {
		t.Errorf("with tested versions only: %v", err)
	}
}
