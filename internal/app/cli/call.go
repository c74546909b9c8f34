package cli

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	copilot "github.com/copilot-grpc/copilot-grpc/clients/go"

	_ "google.golang.org/genproto/googleapis/rpc/errdetails" // details of statuses
	_ "google.golang.org/grpc/health/grpc_health_v1"         // a service that can be called

	"github.com/copilot-grpc/copilot-grpc/internal/terminal"
)

const callUsage = `Makes one call and prints each reply as one line of JSON.

  copilot-grpc call                                         list all methods
  copilot-grpc call GetServerInfo
  copilot-grpc call Run '{"create": {}, "prompt": {"text": "Hello"}}'
  copilot-grpc call SessionModeService/Set @request.json -H 'copilot-fidelity: exact'

METHOD is SERVICE/METHOD, with or without the package. The method alone is enough if no other service has one of that
name; a method of copilot.bridge.v1 precedes those of copilot.cli.v1.

REQUEST is JSON, @FILE for a file with JSON, or - for stdin. For a method with a stream of requests it is a sequence of
JSON documents, which are sent as they come in, and stdin without REQUEST.

"copilot-grpc describe METHOD" prints what a method does, with an example of a request. The command contains the
description of this API. For other servers use grpcurl.`

func setupCall(p *program, f *flags) action {
	c := p.connection(f)
	c.details = true
	headers := f.StringArrayP("header", "H", nil, "`header` to send, \"NAME: VALUE\", in base64 if NAME ends in -bin; "+
		"may be repeated")
	return func(ctx context.Context, args []string) error {
		switch {
		case len(args) == 0:
			return listMethods(p.stdout)
		case len(args) > 2:
			return want(args, "METHOD", "REQUEST")
		}
		method, err := findMethod(args[0])
		if err != nil {
			return usageError{err}
		}
		sent, err := parseHeaders(*headers)
		if err != nil {
			return usageError{err}
		}
		input, err := requestInput(p.stdin, method, args[1:])
		if err != nil {
			return usageError{err}
		}
		out := &printer{out: p.stdout}
		next := requests(input, method.Input())
		first, err := next() // which is checked before a server is called
		if err != nil && !(errors.Is(err, io.EOF) && method.IsStreamingClient()) {
			return err
		}
		ctx = metadata.NewOutgoingContext(ctx, sent)
		return c.with(ctx, func(client *copilot.Client) error {
			return converse(ctx, client.Conn(), method, first, next, out)
		}, copilot.WithoutCheck()) // probes ask for the health of a server that does not serve, or does not know them
	}
}

// parseHeaders reads headers of the form "NAME: VALUE".
func parseHeaders(list []string) (metadata.MD, error) {
	md := metadata.MD{}
	for _, one := range list {
		name, value, ok := strings.Cut(one, ":")
		if name = strings.TrimSpace(name); !ok || name == "" {
			return nil, fmt.Errorf("the header %q is not of the form \"NAME: VALUE\"", one)
		}
		value = strings.TrimSpace(value)
		if strings.HasSuffix(strings.ToLower(name), "-bin") { // gRPC encodes its value again
			decoded, err := base64.StdEncoding.DecodeString(value)
			if err != nil {
				return nil, fmt.Errorf("the value of the header %q is not base64: %w", name, err)
			}
			value = string(decoded)
		}
		md.Append(name, value)
	}
	return md, nil
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
	stream, err := conn.NewStream(ctx, desc, "/"+fullName(method))
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

func (p *program) printStatus(st *status.Status, details bool) {
	fmt.Fprintf(p.stderr, "%s: %s\n", st.Code(), terminal.CleanLine(st.Message()))
	for _, detail := range st.Details() {
		if !details {
			break
		}
		if m, ok := detail.(proto.Message); ok {
			fmt.Fprintf(p.stderr, "  %s ", m.ProtoReflect().Descriptor().Name())
			_ = (&printer{out: &output{w: p.stderr}}).line(m) // it was unmarshalled a moment ago
		}
	}
}
