package cli

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
)

// packages have the services that can be called. Names without a package are looked for in the first, and then in all.
var packages = []protoreflect.FullName{"copilot.bridge.v1", "grpc.health.v1", "copilot.cli.v1"}

// services are the services of a package by name.
func services(pkg protoreflect.FullName) []protoreflect.ServiceDescriptor {
	var list []protoreflect.ServiceDescriptor
	protoregistry.GlobalFiles.RangeFilesByPackage(pkg, func(file protoreflect.FileDescriptor) bool {
		for i := range file.Services().Len() {
			list = append(list, file.Services().Get(i))
		}
		return true
	})
	slices.SortFunc(list, func(a, b protoreflect.ServiceDescriptor) int {
		return strings.Compare(string(a.Name()), string(b.Name()))
	})
	return list
}

// methodsOf are the methods of packages, in the order of their services.
func methodsOf(packages ...protoreflect.FullName) []protoreflect.MethodDescriptor {
	var list []protoreflect.MethodDescriptor
	for _, pkg := range packages {
		for _, s := range services(pkg) {
			for i := range s.Methods().Len() {
				list = append(list, s.Methods().Get(i))
			}
		}
	}
	return list
}

// fullName is a method's name with its package, as calls have it.
func fullName(m protoreflect.MethodDescriptor) string {
	return string(m.Parent().FullName()) + "/" + string(m.Name())
}

// shortName is a method's name without its package.
func shortName(m protoreflect.MethodDescriptor) string {
	return string(m.Parent().Name()) + "/" + string(m.Name())
}

// findMethod finds a method by its full name, by its service and name, or by its name alone.
func findMethod(name string) (protoreflect.MethodDescriptor, error) {
	name = strings.TrimPrefix(name, "/")
	for _, list := range [][]protoreflect.MethodDescriptor{methodsOf(packages[0]), methodsOf(packages...)} {
		var found []string
		var method protoreflect.MethodDescriptor
		for _, m := range list {
			if name == fullName(m) || name == shortName(m) || name == string(m.Name()) {
				method, found = m, append(found, shortName(m))
			}
		}
		switch {
		case len(found) == 1:
			return method, nil
		case len(found) > maxListed:
			return nil, fmt.Errorf("%d services have a method %q: name one, such as %s", len(found), name, found[0])
		case len(found) > 0:
			return nil, fmt.Errorf("%d services have a method %q: choose %s", len(found), name,
				strings.Join(found, " or "))
		}
	}
	return nil, noMethod(name)
}

// noMethod is the error about a name that no method has, with the nearest one.
func noMethod(name string) error {
	slash := strings.LastIndex(name, "/")
	service, method := name[:max(slash, 0)], name[slash+1:]
	service = service[strings.LastIndex(service, ".")+1:]
	var sameService, near []string
	for _, m := range methodsOf(packages...) {
		if string(m.Parent().Name()) == service {
			sameService = append(sameService, string(m.Name()))
		}
		if slash < 0 {
			near = append(near, string(m.Name()))
		} else {
			near = append(near, shortName(m))
		}
	}
	switch {
	case slash < 0:
		return fmt.Errorf("there is no method %q%s", name, suggestion(name, near))
	case sameService != nil:
		return fmt.Errorf("%s has no method %q%s", service, method, suggestion(method, sameService))
	}
	return fmt.Errorf("there is no service %q%s", service, suggestion(service+"/"+method, near))
}

func listMethods(w io.Writer) error {
	var text strings.Builder
	for _, m := range methodsOf(packages...) {
		text.WriteString(fullName(m) + "\n")
	}
	_, err := io.WriteString(w, text.String())
	return err
}
