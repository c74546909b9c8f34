package policy

import (
	_ "embed"
	"fmt"
	"strings"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	"github.com/copilot-grpc/copilot-grpc/bridge/caller"
	_ "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/cli/v1" // its descriptors
	jsonv1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/json/v1"
)

//go:embed methods.txt
var methodsText string

// classes are the classes of calls, by the names in methods.txt.
var classes = mustTable("methods.txt", methodsText, methodName, caller.ParseClass)

func methodName(word string) string { return word }

// mustTable parses an embedded table.
func mustTable[K comparable, V any](file, text string, key func(string) K, value func(string) (V, bool)) map[K]V {
	table, err := parseTable(text, key, value)
	if err != nil {
		panic("policy: " + file + ": " + err.Error()) // it is part of the program
	}
	return table
}

// parseTable parses lines "NAME CLASS". Lines that begin with "#" are comments.
func parseTable[K comparable, V any](text string, key func(string) K, value func(string) (V, bool)) (map[K]V, error) {
	table := map[K]V{}
	for n, line := range strings.Split(text, "\n") {
		words := strings.Fields(line)
		if len(words) == 0 || strings.HasPrefix(words[0], "#") {
			continue
		}
		if len(words) != 2 {
			return nil, fmt.Errorf("line %d: %d words, want NAME CLASS", n+1, len(words))
		}
		class, ok := value(words[1])
		if !ok {
			return nil, fmt.Errorf("line %d: unknown class %q", n+1, words[1])
		}
		name := key(words[0])
		if _, twice := table[name]; twice {
			return nil, fmt.Errorf("line %d: %q has a class already", n+1, words[0])
		}
		table[name] = class
	}
	return table, nil
}

// cliPackage is the package of the rpcs for CLI methods.
const cliPackage = "copilot.cli.v1"

// cliMethod returns the JSON-RPC name of an rpc for a CLI method.
func cliMethod(rpc string) (name string, ok bool) {
	if !strings.HasPrefix(rpc, "/"+cliPackage+".") {
		return "", false
	}
	found, _ := protoregistry.GlobalFiles.FindDescriptorByName(protoreflect.FullName(protoName(rpc)))
	method, ok := found.(protoreflect.MethodDescriptor)
	if !ok || FullMethod(method) != rpc {
		return "", false
	}
	rules, _ := proto.GetExtension(method.Options(), jsonv1.E_Method).(*jsonv1.MethodRules)
	return rules.GetMethod(), true
}

// FullMethod returns gRPC's name of a method.
func FullMethod(m protoreflect.MethodDescriptor) string {
	return "/" + string(m.Parent().FullName()) + "/" + string(m.Name())
}

// Class returns the class of an rpc by its full name, "/package.Service/Method". An rpc that is not in the table is
// Unclassed, and therefore denied.
func Class(rpc string) caller.Class { return classes[nameOf(rpc)] }

// nameOf returns the name of an rpc in methods.txt.
func nameOf(rpc string) string {
	if method, ok := cliMethod(rpc); ok {
		return method
	}
	return protoName(rpc)
}

// protoName returns the name of an rpc in the .proto files.
func protoName(rpc string) string { return strings.ReplaceAll(strings.TrimPrefix(rpc, "/"), "/", ".") }

// permissions is the prefix of the CLI's methods that change permissions.
const permissions = "session.permissions."

// Permits reports whether an rpc changes what agents may do without asking.
func Permits(rpc string) bool {
	name := nameOf(rpc)
	return strings.HasPrefix(name, permissions) && classes[name] > caller.Read &&
		!strings.Contains(name, ".handlePending")
}
