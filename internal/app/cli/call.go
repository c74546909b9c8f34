package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	copilot "github.com/copilot-grpc/copilot-grpc/clients/go"

	"github.com/copilot-grpc/copilot-grpc/internal/terminal"
	_ "google.golang.org/genproto/googleapis/rpc/errdetails" // details of statuses
	_ "google.golang.org/grpc/health/grpc_health_v1"         // a service that can be called
)

const callUsage = `Makes one call. METHOD is the full name of a method, such as
copilot.bridge.v1.RuntimeService/GetServerInfo; the package is optional. REQUEST is JSON. With "-",
or without REQUEST for a method with a stream of requests, the command reads stdin. It prints each
reply as one line of JSON. Without METHOD it lists all methods.

The command contains the description of this API. For other servers use grpcurl.`

// packages are where methods named without a package are looked for.
var packages = []string{"", "copilot.bridge.v1.", "grpc.health.v1."}

func setupCall(p *program, f *flags) action {
	c := p.connection(f)
	c.details = true
	return func(ctx context.Context, args []string) error {
		switch {
		case len(args) == 0:
			listMethods(p.stdout)
			return nil
		case len(args) > 2:
			return want(args, "METHOD", "REQUEST")
		}
		method, err := findMethod(args[0])
		if err != nil {
			return usageError{err}
		}
		out := &printer{out: p.stdout}
		next := requests(p.stdin, method, args[1:])
		first, err := next() // which is checked before a server is called
		if err != nil && !(errors.Is(err, io.EOF) && method.IsStreamingClient()) {
			return err
		}
		return c.with(ctx, func(client *copilot.Client) error {
			return converse(ctx, client.Conn(), method, first, next, out)
		}, copilot.WithoutCheck()) // probes ask for the health of a server that does not serve, or does not know them
	}
}

// findMethod finds a method by its name, with or without its package.
func findMethod(name string) (protoreflect.MethodDescriptor, error) {
	service, method, ok := strings.Cut(strings.TrimPrefix(name, "/"), "/")
	if !ok {
		return nil, fmt.Errorf("%q is not of the form SERVICE/METHOD", name)
	}
	for _, pkg := range packages {
		d, err := protoregistry.GlobalFiles.FindDescriptorByName(protoreflect.FullName(pkg + service))
		if err != nil {
			continue
		}
		if s, ok := d.(protoreflect.ServiceDescriptor); ok {
			if m := s.Methods().ByName(protoreflect.Name(method)); m != nil {
				return m, nil
			}
			return nil, fmt.Errorf("%s has no method %q", s.FullName(), method)
		}
	}
	return nil, fmt.Errorf("there is no service %q", service)
}

// listMethods prints the methods that servers have.
func listMethods(w io.Writer) {
	for _, pkg := range packages[1:] {
		protoregistry.GlobalFiles.RangeFilesByPackage(protoreflect.FullName(strings.TrimSuffix(pkg, ".")),
			func(file protoreflect.FileDescriptor) bool {
				for i := range file.Services().Len() {
					s := file.Services().Get(i)
					for j := range s.Methods().Len() {
						fmt.Fprintf(w, "%s/%s\n", s.FullName(), s.Methods().Get(j).Name())
					}
				}
				return true
			})
	}
}

// newMessage returns an empty message of the generated type.
func newMessage(d protoreflect.MessageDescriptor) (proto.Message, error) {
	t, err := protoregistry.GlobalTypes.FindMessageByName(d.FullName())
	if err != nil {
		return nil, err
	}
	return t.New().Interface(), nil
}

// requests returns what to send, io.EOF after the last.
func requests(stdin io.Reader, method protoreflect.MethodDescriptor, args []string) func() (proto.Message, error) {
	var input io.Reader
	switch {
	case len(args) == 1 && args[0] != "-":
		input = strings.NewReader(args[0])
	case len(args) == 1 || method.IsStreamingClient():
		input = stdin
	default:
		input = strings.NewReader("{}")
	}
	decoder := json.NewDecoder(input)
	return func() (proto.Message, error) {
		var text json.RawMessage
		if err := decoder.Decode(&text); err != nil {
			if !errors.Is(err, io.EOF) {
				err = usageError{fmt.Errorf("the request is not JSON: %w", err)}
			}
			return nil, err
		}
		m, err := newMessage(method.Input())
		if err != nil {
			return nil, err
		}
		if err := protojson.Unmarshal(text, m); err != nil {
			return nil, usageError{fmt.Errorf("the request is not a %s: %w", method.Input().FullName(), err)}
		}
		return m, nil
	}
}

// converse makes the call. Requests of a stream go out as they come in, beside the
// replies.
func converse(
	ctx context.Context, conn grpc.ClientConnInterface, method protoreflect.MethodDescriptor,
	first proto.Message, next func() (proto.Message, error), out *printer,
) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	desc := &grpc.StreamDesc{ServerStreams: method.IsStreamingServer(), ClientStreams: method.IsStreamingClient()}
	stream, err := conn.NewStream(ctx, desc, fmt.Sprintf("/%s/%s", method.Parent().FullName(), method.Name()))
	if err != nil {
		return err
	}
	go func() {
		// It ends with its input, or with the program: reading cannot be interrupted.
		if err := send(stream, first, next, method.IsStreamingClient()); err != nil {
			cancel(err)
		}
	}()
	for {
		reply, err := newMessage(method.Output())
		if err != nil {
			return err
		}
		if err := stream.RecvMsg(reply); err != nil {
			return ended(ctx, err)
		}
		if err := out.line(reply); err != nil {
			return err
		}
		if !method.IsStreamingServer() {
			return nil
		}
	}
}

// ended returns the error of a stream that ended with err.
func ended(ctx context.Context, err error) error {
	var usage usageError
	switch {
	case errors.Is(err, io.EOF):
		return nil
	case errors.As(context.Cause(ctx), &usage):
		return usage // which is why the call was cancelled
	}
	return err
}

// send sends all requests. The receiving side reports errors of the stream.
func send(stream grpc.ClientStream, first proto.Message, next func() (proto.Message, error), more bool) error {
	for m := first; m != nil; {
		if stream.SendMsg(m) != nil {
			return nil
		}
		if !more {
			break
		}
		var err error
		if m, err = next(); err != nil && !errors.Is(err, io.EOF) {
			return err
		}
	}
	_ = stream.CloseSend() // never fails
	return nil
}

// printStatus prints the status with which a call failed.
func (p *program) printStatus(st *status.Status, details bool) {
	fmt.Fprintf(p.stderr, "%s: %s\n", st.Code(), terminal.CleanLine(st.Message()))
	for _, detail := range st.Details() {
		if !details {
			break
		}
		if m, ok := detail.(proto.Message); ok {
			fmt.Fprintf(p.stderr, "  %s ", m.ProtoReflect().Descriptor().Name())
			_ = (&printer{out: p.stderr}).line(m) // it was unmarshalled a moment ago
		}
	}
}
