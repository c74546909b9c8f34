package passthrough

import (
	"bytes"
	"flag"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/copilot-grpc/copilot-grpc/bridge/callback"
	"github.com/copilot-grpc/copilot-grpc/internal/testing/climethods"
)

var update = flag.Bool("update", false, "write docs/methods.md anew")

// methodsPage shows the table to people.
const methodsPage = "../../docs/methods.md"

// Every row of the tables is about methods that there are, once each, and says why.
func TestOwnMethodsExist(t *testing.T) {
	t.Parallel()
	methods := climethods.All()
	if len(methods) < 600 {
		t.Fatalf("only %d methods", len(methods))
	}
	seen := map[string]bool{}
	for _, row := range overrides {
		found := methods[row.method] != nil
		if strings.HasSuffix(row.method, ".") {
			for name := range methods {
				found = found || strings.HasPrefix(name, row.method)
			}
		}
		if !found || seen[row.method] || row.why == "" {
			t.Errorf("row %q: exists %t, is there twice %t, why %q", row.method, found, seen[row.method], row.why)
		}
		seen[row.method] = true
	}
	for method, rule := range rememberedCalls {
		if methods[method] == nil || seen[method] {
			t.Errorf("setting %q is no method, or is in the other table too", method)
		}
		if m := methods[method]; m != nil && rule.member != "" && m.Input().Fields().ByJSONName(rule.member) == nil {
			t.Errorf("setting %q has no parameter %q", method, rule.member)
		}
	}
}

// Methods that a rpc of copilot.bridge.v1 also covers run through the same code: all methods that answer
// callbacks, and the methods about a session's life, its turns and its tools.
func TestCoreMethodsRunThroughTheCore(t *testing.T) {
	t.Parallel()
	core := strings.Fields(`session.create session.resume session.destroy session.detach session.delete session.send
		session.abort session.tools.set session.options.update session.model.switchTo session.permissions.setApproveAll`)
	for name := range climethods.All() {
		if strings.Contains(name, ".handlePending") || name == "session.commands.respondToQueuedCommand" {
			core = append(core, name)
		}
	}
	for _, eventType := range []string{callback.ToolRequested, callback.PermissionRequested, callback.CommandExecute} {
		core = append(core, callback.ForEvent(eventType).AnswerMethod)
	}
	if len(core) < 20 {
		t.Fatalf("found only %q", core)
	}
	for _, method := range core {
		if row := overrideOf(method); row == nil || row.run == nil {
			t.Errorf("%s is passed on, or refused", method)
		}
	}
}

// docs/methods.md says what the tables say.
func TestMethodsPage(t *testing.T) {
	t.Parallel()
	var page bytes.Buffer
	page.WriteString(`# Methods with special handling

<!-- From the tables in bridge/passthrough/overrides.go: go test ./bridge/passthrough -run TestMethodsPage -update -->

The services of copilot.cli.v1 and RawService pass all methods on to the CLI, except the
methods on this page. A name that ends in a dot stands for all methods with that prefix.
RawService does not check the parameters: what the CLI accepts without effect has no effect.

## Refused

These methods return UNIMPLEMENTED with the reason METHOD_REFUSED.

| method | why | instead |
|---|---|---|
`)
	for _, row := range overrides {
		if row.run == nil {
			fmt.Fprintf(&page, "| `%s` | %s | %s |\n", row.method, row.why, row.instead)
		}
	}
	page.WriteString("\n## Handled by the bridge\n\n| method | why |\n|---|---|\n")
	for _, row := range overrides {
		if row.run != nil {
			fmt.Fprintf(&page, "| `%s` | %s |\n", row.method, row.why)
		}
	}
	page.WriteString("\n## Passed on and repeated\n\nEach of these methods changes a setting: " + whyKept + ".\n\n")
	for _, method := range slices.Sorted(maps.Keys(rememberedCalls)) {
		fmt.Fprintf(&page, "- `%s`\n", method)
	}
	page.WriteString(`
## Sizes and runtimes

The bridge returns a result in one message of up to 128 MiB, the largest message that it reads
from the CLI. Most gRPC libraries accept 4 MiB by default. For a larger result the library
itself returns RESOURCE_EXHAUSTED without the bridge's reason, although the CLI has carried out
the call. To call methods with large results (session.getMessages, session.eventLog.read,
session.workspaces.readFile, …), raise that limit. The Go client accepts 16 MiB. To read in
smaller pieces, use SessionService.ListEvents for the history and SessionService.ReadEvent for
a large event.

The bridge calls a method without a session in the first runtime of the server's own profile.
To use another runtime, set runtime_profile in RawService.Invoke.
`)
	if *update {
		if err := os.WriteFile(methodsPage, page.Bytes(), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := os.ReadFile(methodsPage); err != nil || !bytes.Equal(got, page.Bytes()) {
		t.Errorf("%s is not what the tables say (%v): "+
			"run go test ./bridge/passthrough -run TestMethodsPage -update", methodsPage, err)
	}
}
