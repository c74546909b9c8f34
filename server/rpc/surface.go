package rpc

import (
	"context"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/dynamicpb"

	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
	cliv1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/cli/v1"
	jsonv1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/json/v1"
)

// Request metadata of every method.
const (
	// MetadataFidelity with the value FidelityExact requests the CLI's own behaviour, code and text.
	MetadataFidelity = "copilot-fidelity"
	// MetadataRequestID makes a modifying call idempotent: a second call with the same id gets the first one's
	// answer. Reads are always carried out.
	MetadataRequestID = "copilot-request-id"

	// MetadataProfile selects the runtime for calls without a session: a RuntimeProfile in wire form. Its providers
	// need keys.
	MetadataProfile = "copilot-runtime-profile-bin"

	// FidelityTidy and FidelityExact are the values of MetadataFidelity.
	FidelityTidy  = "tidy"
	FidelityExact = "exact"
)

// SurfacePackage is the protobuf package of the surface's services.
var SurfacePackage = cliv1.File_copilot_cli_v1_session_proto.Package()

// SurfaceBackend implements the services of copilot.cli.v1.
type SurfaceBackend interface {
	// CallCLI calls a method with a request in wire form and returns the reply in wire form. With exact, both
	// represent the CLI's JSON completely, and errors are the CLI's own.
	CallCLI(
		ctx context.Context, method protoreflect.MethodDescriptor, request []byte,
		exact bool, requestID string, profile *bridgev1.RuntimeProfile,
	) ([]byte, error)
}

// surface serves all services of copilot.cli.v1 by one handler.
type surface struct {
	backend  SurfaceBackend
	internal bool
}

// NewSurface returns the services of copilot.cli.v1. internal adds the methods that the CLI marks
// as internal.
func NewSurface(b SurfaceBackend, internal bool) Service { return &surface{b, internal} }

func (s *surface) Register(r grpc.ServiceRegistrar) {
	for _, service := range SurfaceServices(s.internal) {
		desc := &grpc.ServiceDesc{
			ServiceName: string(service.FullName()), HandlerType: (*any)(nil), Metadata: service.ParentFile().Path(),
		}
		for i := range service.Methods().Len() {
			desc.Methods = append(desc.Methods, s.method(service.Methods().Get(i)))
		}
		r.RegisterService(desc, s)
	}
}

// SurfaceServices returns the services of the package that clients can call. internal includes the services
// that the CLI marks as internal. Methods that the CLI calls are not included.
func SurfaceServices(internal bool) []protoreflect.ServiceDescriptor {
	var services []protoreflect.ServiceDescriptor
	protoregistry.GlobalFiles.RangeFilesByPackage(SurfacePackage, func(f protoreflect.FileDescriptor) bool {
		for i := range f.Services().Len() {
			service := f.Services().Get(i)
			if rules := MethodRules(service.Methods().Get(0)); !rules.GetCallback() && (internal || !rules.GetInternal()) {
				services = append(services, service)
			}
		}
		return true
	})
	return services
}

// MethodRules returns a method's mapping to JSON-RPC.
func MethodRules(m protoreflect.MethodDescriptor) *jsonv1.MethodRules {
	rules, _ := proto.GetExtension(m.Options(), jsonv1.E_Method).(*jsonv1.MethodRules)
	return rules
}

// method returns the handler of one method.
func (s *surface) method(m protoreflect.MethodDescriptor) grpc.MethodDesc {
	full := "/" + string(m.Parent().FullName()) + "/" + string(m.Name())
	handle := func(ctx context.Context, req any) (any, error) {
		md, _ := metadata.FromIncomingContext(ctx)
		exact, err := exactly(md)
		if err != nil {
			return nil, err
		}
		profile, err := profileOf(md)
		if err != nil {
			return nil, err
		}
		id := strings.Join(md.Get(MetadataRequestID), ",")
		wire, err := s.backend.CallCLI(ctx, m, req.(*message).wire, exact, id, profile)
		if err != nil {
			return nil, err
		}
		return &message{descriptor: m.Output(), wire: wire}, nil
	}
	return grpc.MethodDesc{
		MethodName: string(m.Name()),
		Handler: func(
			_ any, ctx context.Context, decode func(any) error, interceptor grpc.UnaryServerInterceptor,
		) (any, error) {
			req := &message{descriptor: m.Input()}
			if err := decode(req); err != nil {
				return nil, err
			}
			if interceptor == nil {
				return handle(ctx, req)
			}
			return interceptor(ctx, req, &grpc.UnaryServerInfo{Server: s, FullMethod: full}, handle)
		},
	}
}

// exactly reports whether a call requests FidelityExact.
func exactly(md metadata.MD) (bool, error) {
	values := md.Get(MetadataFidelity)
	if len(values) == 0 {
		return false, nil
	}
	switch values[len(values)-1] {
	case FidelityExact:
		return true, nil
	case FidelityTidy, "":
		return false, nil
	}
	return false, fault.New(fault.InvalidField, "the metadata %s is neither %q nor %q",
		MetadataFidelity, FidelityTidy, FidelityExact).WithField(MetadataFidelity)
}

// profileOf returns the runtime profile of a call; nil for the default.
func profileOf(md metadata.MD) (*bridgev1.RuntimeProfile, error) {
	values := md.Get(MetadataProfile)
	if len(values) == 0 {
		return nil, nil
	}
	profile := &bridgev1.RuntimeProfile{}
	if err := proto.Unmarshal([]byte(values[len(values)-1]), profile); err != nil {
		return nil, fault.New(fault.InvalidField, "the metadata %s is not a RuntimeProfile", MetadataProfile).
			WithField(MetadataProfile)
	}
	return profile, nil
}

// message is a message in wire form. It implements codec.Ready.
type message struct {
	descriptor protoreflect.MessageDescriptor
	wire       []byte
}

// Wire implements codec.Ready.
func (m *message) Wire() []byte { return m.wire }

// TakeWire implements codec.Ready.
func (m *message) TakeWire(wire []byte) { m.wire = wire }

// Descriptor returns the type of the message.
func (m *message) Descriptor() protoreflect.MessageDescriptor { return m.descriptor }

// Message returns the parsed message for logs; nil if its bytes are invalid.
func (m *message) Message() proto.Message {
	dynamic := dynamicpb.NewMessage(m.descriptor)
	if proto.Unmarshal(m.wire, dynamic) != nil {
		return nil
	}
	return dynamic
}

// GetSessionId returns the session of the call; "" if there is none.
func (m *message) GetSessionId() string { return m.text("session_id") }

// GetPolicySessionId returns the session whose rules apply to a call without a session; "" if there is none.
func (m *message) GetPolicySessionId() string { return m.text("policy_session_id") }

// text returns the value of a text field, without parsing the other fields; "" if there is none.
func (m *message) text(name protoreflect.Name) (value string) {
	field := m.descriptor.Fields().ByName(name)
	if field == nil {
		return ""
	}
	for rest := m.wire; len(rest) > 0; {
		number, kind, n := protowire.ConsumeTag(rest)
		if n < 0 {
			return value
		}
		rest = rest[n:]
		size := protowire.ConsumeFieldValue(number, kind, rest)
		if size < 0 {
			return value
		}
		if number == field.Number() && kind == protowire.BytesType {
			text, _ := protowire.ConsumeBytes(rest)
			value = string(text)
		}
		rest = rest[size:]
	}
	return value
}
