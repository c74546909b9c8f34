package schemagen

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
)

// TestCommittedCoreIsSmall follows the imports of copilot.bridge.v1, as a generator does that is given its files. They
// lead to at most a third of all messages, to no service but the bridge's own, and to no file of the CLI's surface.
func TestCommittedCoreIsSmall(t *testing.T) {
	t.Parallel()
	ledger, err := ReadLedger("ledger.json")
	if err != nil {
		t.Fatal(err)
	}
	all, inCore, reached := 0, 0, reachedFromBridge()
	core := importedByBridge()
	var figures []string
	protoregistry.GlobalFiles.RangeFiles(func(f protoreflect.FileDescriptor) bool {
		if !strings.HasPrefix(f.Path(), "copilot/") {
			return true
		}
		n := f.Messages().Len()
		all += n
		if core[f.Path()] == nil {
			return true
		}
		inCore += n
		unreached := 0
		for i := range n {
			m := f.Messages().Get(i)
			if !reached[m.FullName()] {
				unreached++
			}
			if f.Package() == protoPackage && !slices.Contains(ledger.Core, string(m.Name())) {
				t.Errorf("%s imports %s, which the core does not have: run make schema", f.Path(), m.FullName())
			}
		}
		if f.Package() != bridgePackage && f.Services().Len() > 0 {
			t.Errorf("%s has a service, and copilot.bridge.v1 imports it", f.Path())
		}
		figures = append(figures, fmt.Sprintf("%s: %d messages, %d of them not reached", f.Path(), n, unreached))
		return true
	})
	if all < 2000 || inCore < 500 {
		t.Fatalf("found only %d messages, %d of them in the core", all, inCore)
	}
	if inCore*3 > all {
		slices.Sort(figures)
		t.Errorf("copilot.bridge.v1 imports %d of %d messages, more than a third (%d):\n%s", inCore, all, all/3,
			strings.Join(figures, "\n"))
	}
	t.Logf("the core has %d of %d messages in %d files", inCore, all, len(core))
}

const bridgePackage = "copilot.bridge.v1"

// importedByBridge has the files that copilot.bridge.v1 imports, itself included.
func importedByBridge() map[string]protoreflect.FileDescriptor {
	out := map[string]protoreflect.FileDescriptor{}
	var add func(f protoreflect.FileDescriptor)
	add = func(f protoreflect.FileDescriptor) {
		if out[f.Path()] != nil {
			return
		}
		out[f.Path()] = f
		for i := range f.Imports().Len() {
			add(f.Imports().Get(i).FileDescriptor)
		}
	}
	protoregistry.GlobalFiles.RangeFilesByPackage(bridgePackage, func(f protoreflect.FileDescriptor) bool {
		add(f)
		return true
	})
	return out
}

// reachedFromBridge has the messages of copilot.bridge.v1 and those that their fields lead to.
func reachedFromBridge() map[protoreflect.FullName]bool {
	out := map[protoreflect.FullName]bool{}
	var add func(m protoreflect.MessageDescriptor)
	add = func(m protoreflect.MessageDescriptor) {
		if m == nil || out[m.FullName()] {
			return
		}
		out[m.FullName()] = true
		for i := range m.Fields().Len() {
			add(m.Fields().Get(i).Message())
		}
	}
	protoregistry.GlobalFiles.RangeFilesByPackage(bridgePackage, func(f protoreflect.FileDescriptor) bool {
		for i := range f.Messages().Len() {
			add(f.Messages().Get(i))
		}
		return true
	})
	return out
}

// TestCoreOnlyGrows: a type that the bridge's API reaches with one version stays in the core with the next one, which
// does not lead there any more, and so do its types. All others stay outside.
func TestCoreOnlyGrows(t *testing.T) {
	t.Parallel()
	defs := `"Root":{"type":"object","additionalProperties":false,"properties":{%s}},` +
		`"Leaf":{"type":"object","additionalProperties":false,"properties":{"e":{"$ref":"#/definitions/Kind"}}},` +
		`"Kind":{"enum":["a","b"]},` +
		`"Other":{"type":"object","additionalProperties":false,"properties":{"l":` + ref("Leaf") + `}}`
	methods := method("go", `"r":`+ref("Root")+`,"s":`+ref("Other"), ref("Leaf"))
	l := NewLedger()
	for _, tc := range []struct{ version, member string }{{"1", `"leaf":` + ref("Leaf")}, {"2", ""}} {
		m, err := Merge([]*Model{modelOf(t, tc.version, fmt.Sprintf(defs, tc.member), methods)})
		if err != nil {
			t.Fatal(err)
		}
		pl, _, err := newPlan(m)
		if err != nil {
			t.Fatal(err)
		}
		pl.assignFiles(l.growCore(pl, []string{"Root", "NotYet"}))
		got := []string{pl.Messages["Root"].File, pl.Messages["Leaf"].File, pl.Enums["Kind"].File,
			pl.Messages["Other"].File}
		if want := []string{"session_types", "session_types", "session_types", "session"}; !slices.Equal(got, want) {
			t.Errorf("version %s: got the files %q, want %q", tc.version, got, want)
		}
		if missing := pl.missingRoots([]string{"Root", "Kind", "NotYet"}); !slices.Equal(missing, []string{"NotYet"}) {
			t.Errorf("version %s: got the missing roots %q", tc.version, missing)
		}
	}
	if want := []string{"Kind", "Leaf", "Root"}; !slices.Equal(l.Core, want) {
		t.Errorf("got the core %q, want %q", l.Core, want)
	}
}

func TestCoreFile(t *testing.T) {
	t.Parallel()
	for users, want := range map[string]string{
		"event_types":                       eventTypes,
		"session":                           "session_types",
		"session_tools session_mcp_oauth":   "session_types",
		"callback_hooks callback_canvas":    "callback_types",
		"models server":                     "runtime_types",
		"event_types session":               commonFile,
		"callback_session session_commands": commonFile,
	} {
		set := map[string]bool{}
		for _, u := range strings.Fields(users) {
			set[u] = true
		}
		if got := coreFile(set); got != want {
			t.Errorf("users %s: got %s, want %s", users, got, want)
		}
	}
}

func TestBridgeUses(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if _, err := BridgeUses(dir); err == nil || !strings.Contains(err.Error(), "no .proto files") {
		t.Errorf("an empty folder: got %v", err)
	}
	text := `import "copilot/cli/v1/common.proto";
// copilot.cli.v1.OnlyMentioned
message M {
  copilot.cli.v1.Used a = 1; // copilot.cli.v1.Other
  map<string, copilot.cli.v1.Used2> b = 2;
  copilot.cli.v1.Used c = 3;
}
`
	if err := os.WriteFile(filepath.Join(dir, "m.proto"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	got, err := BridgeUses(dir)
	if want := []string{"Used", "Used2"}; err != nil || !slices.Equal(got, want) {
		t.Errorf("got %q, %v, want %q", got, err, want)
	}
}
