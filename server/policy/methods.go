package policy

import (
	_ "embed"
	"fmt"
	"strings"
	"sync"

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
var classes = mustClasses(methodsText)

func mustClasses(text string) map[string]caller.Class {
	table, err := parseClasses(text)
	if err != nil {
		panic("policy: methods.txt: " + err.Error()) // it is part of the program
	}
	return table
}

func parseClasses(text string) (map[string]caller.Class, error) {
	table := map[string]caller.Class{}
	for n, line := range strings.Split(text, "\n") {
		fields := strings.Fields(line)
		if len(fields) == 0 || strings.HasPrefix(fields[0], "#") {
			continue
		}
		if len(fields) != 2 {
			return nil, fmt.Errorf("line %d: %d words, want METHOD CLASS", n+1, len(fields))
		}
		class, ok := caller.ParseClass(fields[1])
		if !ok {
			return nil, fmt.Errorf("line %d: unknown class %q", n+1, fields[1])
		}
		if table[fields[0]] != caller.Unclassed {
			return nil, fmt.Errorf("line %d: %q has a class already", n+1, fields[0])
		}
		table[fields[0]] = class
	}
	return table, nil
}

// Methods maps calls to classes. It is safe for concurrent use.
type Methods struct{}

// cliPackage is the package of the rpcs for CLI methods.
const cliPackage = "copilot.cli.v1"

// jsonRPC has the JSON-RPC names of those rpcs for CLI methods that were asked for, by full name. Reading the
// descriptors of all of them takes some milliseconds, for which the start of a server would have to wait.
var jsonRPC sync.Map

// NewMethods returns the classes of all calls.
func NewMethods() Methods { return Methods{} }

// cliMethod returns the JSON-RPC name of an rpc for a CLI method. The first call for a service reads its descriptors.
func cliMethod(rpc string) (name string, ok bool) {
	if !strings.HasPrefix(rpc, "/"+cliPackage+".") {
		return "", false
	}
	if name, ok := jsonRPC.Load(rpc); ok {
		return name.(string), true
	}
	found, _ := protoregistry.GlobalFiles.FindDescriptorByName(protoreflect.FullName(protoName(rpc)))
	method, ok := found.(protoreflect.MethodDescriptor)
	if !ok || FullMethod(method) != rpc {
		return "", false
	}
	rules, _ := proto.GetExtension(method.Options(), jsonv1.E_Method).(*jsonv1.MethodRules)
	jsonRPC.Store(rpc, rules.GetMethod())
	return rules.GetMethod(), true
}

// FullMethod returns gRPC's name of a method.
func FullMethod(m protoreflect.MethodDescriptor) string {
	return "/" + string(m.Parent().FullName()) + "/" + string(m.Name())
}

// Class returns the class of an rpc by its full name, "/package.Service/Method". An rpc that is not in the table is
// Unclassed, and therefore denied.
func (m Methods) Class(rpc string) caller.Class { return classes[m.name(rpc)] }

// name returns the name of an rpc in methods.txt.
func (m Methods) name(rpc string) string {
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
func (m Methods) Permits(rpc string) bool {
	name := m.name(rpc)
	return strings.HasPrefix(name, permissions) && classes[name] > caller.Read &&
		!strings.Contains(name, ".handlePending")
}
