package policy

import (
	"maps"
	"slices"
	"strings"
	"testing"

	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	reflectionv1 "google.golang.org/grpc/reflection/grpc_reflection_v1"
	reflectionv1alpha "google.golang.org/grpc/reflection/grpc_reflection_v1alpha"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/descriptorpb"

	"github.com/copilot-grpc/copilot-grpc/bridge/caller"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
	jsonv1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/json/v1"
)

// every returns the full names of all rpcs that a server can have, grouped as in methods.txt.
func every(t *testing.T) map[string][]string {
	t.Helper()
	names := map[string][]string{}
	files := []protoreflect.FileDescriptor{
		healthv1.File_grpc_health_v1_health_proto, reflectionv1.File_grpc_reflection_v1_reflection_proto,
		reflectionv1alpha.File_grpc_reflection_v1alpha_reflection_proto,
	}
	for _, pkg := range []protoreflect.FullName{cliPackage, bridgev1.File_copilot_bridge_v1_error_proto.Package()} {
		protoregistry.GlobalFiles.RangeFilesByPackage(pkg, func(f protoreflect.FileDescriptor) bool {
			files = append(files, f)
			return true
		})
	}
	for _, f := range files {
		for i := range f.Services().Len() {
			methods := f.Services().Get(i).Methods()
			for j := range methods.Len() {
				rules, _ := proto.GetExtension(methods.Get(j).Options(), jsonv1.E_Method).(*jsonv1.MethodRules)
				if !rules.GetCallback() { // those the CLI calls
					full := FullMethod(methods.Get(j))
					names[nameOf(full)] = append(names[nameOf(full)], full)
				}
			}
		}
	}
	return names
}

// A method without a class is denied to all callers: each method has a class or is not served.
func TestEveryRPCHasAClass(t *testing.T) {
	t.Parallel()
	all := every(t)
	for _, name := range slices.Sorted(maps.Keys(all)) {
		for _, rpc := range all[name] {
			if class := Class(rpc); class == caller.Unclassed {
				t.Errorf("%s (%s) has no class: add it to methods.txt", name, rpc)
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(classes)) {
		if all[name] == nil {
			t.Errorf("methods.txt has %q, which is no rpc", name)
		}
	}
}

// Methods that the CLI marks as internal are for administrators.
func TestInternalMethodsAreForAdmins(t *testing.T) {
	t.Parallel()
	n := 0
	for _, service := range fileServices() {
		for j := range service.Methods().Len() {
			m := service.Methods().Get(j)
			rules, _ := proto.GetExtension(m.Options(), jsonv1.E_Method).(*jsonv1.MethodRules)
			if !rules.GetInternal() || rules.GetCallback() {
				continue
			}
			n++
			if class := Class(FullMethod(m)); class != caller.Operate {
				t.Errorf("%s is internal and of the class %q", rules.GetMethod(), class)
			}
		}
	}
	if n == 0 {
		t.Error("no internal method was found")
	}
}

func fileServices() (out []protoreflect.ServiceDescriptor) {
	protoregistry.GlobalFiles.RangeFilesByPackage(cliPackage, func(f protoreflect.FileDescriptor) bool {
		for i := range f.Services().Len() {
			out = append(out, f.Services().Get(i))
		}
		return true
	})
	return out
}

// Words in a method's name that mostly mean that it touches the host; who has them and does
// not is named here, with the reason in mind.
func TestWhatSoundsLikeTheHostIsClassedSo(t *testing.T) {
	t.Parallel()
	harmless := map[string]bool{
		"session.extensions.list": true, "session.plugins.list": true, "session.skills.list": true, // names only
		"session.extensions.sendAttachmentsToMessage": true, // of the session's own message
		"session.skills.getInvoked":                   true,
		"session.sandbox.getEnforcementStatus":        true,
	}
	words := []string{"shell", "plugin", "extension", "skill", "install", "sandbox", "hook", "path", "dir", "file",
		"folder", "env"}
	for name, class := range classes {
		// Services written by hand check what their requests say.
		if harmless[name] || class == caller.Host || class == caller.Operate || strings.HasPrefix(name, "copilot.") ||
			strings.HasPrefix(name, "grpc.") {
			continue
		}
		for _, word := range words {
			if strings.Contains(strings.ToLower(strings.TrimPrefix(name, "session")), word) && !refused[name] {
				t.Errorf("%q has the class %q", name, class)
			}
		}
	}
}

// refused are methods that the bridge refuses for all callers.
var refused = map[string]bool{
	"sessions.registerExtensionToolsOnSession":         true,
	"session.ui.registerDirectAutoModeSwitchHandler":   true,
	"session.ui.unregisterDirectAutoModeSwitchHandler": true,
}

func TestTableIsRead(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"a read\n# b\n\n": "", "a": "1 words", "a b c": "3 words", "a look": `unknown class "look"`,
		"a read\na read": "line 2",
	} {
		_, err := parseTable(text, methodName, caller.ParseClass)
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%q: error %v, want %q", text, err, want)
		}
	}
}

// The protos mark the rpcs of copilot.bridge.v1 without side effects, which browsers may call by GET: those are the
// ones that observers may call, except WatchPending, which makes callers with more rights handlers of callbacks.
func TestMethodsWithoutSideEffects(t *testing.T) {
	t.Parallel()
	const watchPending = "copilot.bridge.v1.CallbackService.WatchPending"
	protoregistry.GlobalFiles.RangeFilesByPackage("copilot.bridge.v1", func(f protoreflect.FileDescriptor) bool {
		for i := range f.Services().Len() {
			methods := f.Services().Get(i).Methods()
			for j := range methods.Len() {
				m := methods.Get(j)
				options, _ := m.Options().(*descriptorpb.MethodOptions)
				marked := options.GetIdempotencyLevel() == descriptorpb.MethodOptions_NO_SIDE_EFFECTS
				reads := Class(FullMethod(m)) == caller.Read && m.FullName() != watchPending
				if marked != reads {
					t.Errorf("%s: marked %v, for observers %v", m.FullName(), marked, reads)
				}
			}
		}
		return true
	})
}

// The rpcs of copilot.cli.v1 that are marked as without side effects are among those that observers may call.
func TestReadsOfTheCLIAreForObservers(t *testing.T) {
	t.Parallel()
	marked := 0
	protoregistry.GlobalFiles.RangeFilesByPackage("copilot.cli.v1", func(f protoreflect.FileDescriptor) bool {
		for i := range f.Services().Len() {
			methods := f.Services().Get(i).Methods()
			for j := range methods.Len() {
				m := methods.Get(j)
				options, _ := m.Options().(*descriptorpb.MethodOptions)
				if options.GetIdempotencyLevel() != descriptorpb.MethodOptions_NO_SIDE_EFFECTS {
					continue
				}
				marked++
				if class := Class(FullMethod(m)); class != caller.Read {
					t.Errorf("%s has the class %v", m.FullName(), class)
				}
			}
		}
		return true
	})
	if marked < 50 {
		t.Errorf("%d rpcs are marked", marked)
	}
}

// Only the exact full name of an rpc for a CLI method has the method's class.
func TestMethodsByExactName(t *testing.T) {
	t.Parallel()
	const rpc = "/copilot.cli.v1.SessionQueueService/Clear"
	if Class(rpc) == caller.Unclassed {
		t.Errorf("%s has no class", rpc)
	}
	for _, name := range []string{
		"copilot.cli.v1.SessionQueueService/Clear", "/copilot.cli.v1/SessionQueueService/Clear",
		"/copilot.cli.v1.SessionQueueService.Clear", "/copilot.cli.v1.SessionQueueService/Clear/",
		"/copilot.cli.v1.SessionQueueService/", "/copilot.cli.v1.SessionQueueService/Nothing", "/copilot.cli.v1./",
		"/copilot.cli.v1.SessionQueueService//Clear",
	} {
		if class := Class(name); class != caller.Unclassed {
			t.Errorf("%s has the class %v", name, class)
		}
	}
}
