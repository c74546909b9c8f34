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

// Methods maps calls to classes.
type Methods struct {
	// jsonRPC has the JSON-RPC names of the rpcs for CLI methods, by full name.
	jsonRPC map[string]string
}

// cliPackage is the package of the rpcs for CLI methods.
const cliPackage = "copilot.cli.v1"

// NewMethods returns the classes of all calls. The first call takes some milliseconds, because it reads the descriptors
// of the CLI's methods.
func NewMethods() Methods { return cliMethods() }

var cliMethods = sync.OnceValue(func() Methods {
	m := Methods{jsonRPC: map[string]string{}}
	protoregistry.GlobalFiles.RangeFilesByPackage(cliPackage, func(f protoreflect.FileDescriptor) bool {
		for i := range f.Services().Len() {
			methods := f.Services().Get(i).Methods()
			for j := range methods.Len() {
				rules, _ := proto.GetExtension(methods.Get(j).Options(), jsonv1.E_Method).(*jsonv1.MethodRules)
				m.jsonRPC[FullMethod(methods.Get(j))] = rules.GetMethod()
			}
		}
		return true
	})
	return m
})

// FullMethod returns gRPC's name of a method.
func FullMethod(m protoreflect.MethodDescriptor) string {
	return "/" + string(m.Parent().FullName()) + "/" + string(m.Name())
}

// Class returns the class of an rpc by its full name, "/package.Service/Method". An rpc that is not in the table is
// Unclassed, and therefore denied.
func (m Methods) Class(rpc string) caller.Class { return classes[m.name(rpc)] }

// name returns the name of an rpc in methods.txt.
func (m Methods) name(rpc string) string {
	if method, ok := m.jsonRPC[rpc]; ok {
		return method
	}
	return strings.ReplaceAll(strings.TrimPrefix(rpc, "/"), "/", ".")
}

// permissions is the prefix of the CLI's methods that change permissions.
const permissions = "session.permissions."

// Permits reports whether an rpc changes what agents may do without asking.
func (m Methods) Permits(rpc string) bool {
	name := m.name(rpc)
	return strings.HasPrefix(name, permissions) && classes[name] > caller.Read &&
		!strings.Contains(name, ".handlePending")
}
