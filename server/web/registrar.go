package web

import (
	"fmt"
	"strings"

	"connectrpc.com/connect/v2"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/dynamicpb"
)

// method is a method of a registered service, either unary or a stream.
type method struct {
	spec   connect.Spec
	schema protoreflect.MethodDescriptor
	impl   any
	unary  grpc.MethodHandler
	stream grpc.StreamHandler
	info   grpc.StreamServerInfo
}

// registrar collects the methods of services.
type registrar struct {
	methods []*method
	errs    []error
}

// RegisterService implements grpc.ServiceRegistrar.
func (r *registrar) RegisterService(desc *grpc.ServiceDesc, impl any) {
	found, err := protoregistry.GlobalFiles.FindDescriptorByName(protoreflect.FullName(desc.ServiceName))
	if err != nil {
		r.errs = append(r.errs, fmt.Errorf("service %s: %w", desc.ServiceName, err))
		return
	}
	service, ok := found.(protoreflect.ServiceDescriptor)
	if !ok {
		r.errs = append(r.errs, fmt.Errorf("%s is not a service", desc.ServiceName))
		return
	}
	for i := range desc.Methods {
		r.add(service, desc.Methods[i].MethodName, &method{impl: impl, unary: desc.Methods[i].Handler})
	}
	for i := range desc.Streams {
		s := &desc.Streams[i]
		r.add(service, s.StreamName, &method{impl: impl, stream: s.Handler,
			info: grpc.StreamServerInfo{IsClientStream: s.ClientStreams, IsServerStream: s.ServerStreams}})
	}
}

// add completes a method with its descriptor.
func (r *registrar) add(service protoreflect.ServiceDescriptor, name string, m *method) {
	m.schema = service.Methods().ByName(protoreflect.Name(name))
	if m.schema == nil {
		r.errs = append(r.errs, fmt.Errorf("service %s has no method %s", service.FullName(), name))
		return
	}
	m.spec = connect.Spec{Procedure: "/" + string(service.FullName()) + "/" + name, Schema: m.schema}
	m.info.FullMethod = m.spec.Procedure
	if m.info.IsClientStream {
		m.spec.StreamType |= connect.StreamTypeClient
	}
	if m.info.IsServerStream {
		m.spec.StreamType |= connect.StreamTypeServer
	}
	options, _ := m.schema.Options().(*descriptorpb.MethodOptions)
	m.spec.IdempotencyLevel = connect.IdempotencyLevel(options.GetIdempotencyLevel())
	r.methods = append(r.methods, m)
}

// isProcedure reports whether a path has the form of a method's: "/package.Service/Method".
func isProcedure(path string) bool {
	service, name, ok := strings.Cut(strings.TrimPrefix(path, "/"), "/")
	return ok && protoreflect.FullName(service).IsValid() && protoreflect.Name(name).IsValid()
}

// newMessage returns a new message: of the generated type if there is one.
func newMessage(d protoreflect.MessageDescriptor) proto.Message {
	if t, err := protoregistry.GlobalTypes.FindMessageByName(d.FullName()); err == nil {
		return t.New().Interface()
	}
	return dynamicpb.NewMessage(d)
}
