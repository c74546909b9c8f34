package main

import (
	"context"
	"encoding/base64"
	"errors"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	spb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	pb "github.com/copilot-grpc/copilot-grpc/internal/testing/connectsuite/gen/connectrpc/conformance/v1"
	"github.com/copilot-grpc/copilot-grpc/server/account"
	serverstatus "github.com/copilot-grpc/copilot-grpc/server/status"
)

// service is the suite's service. Its requests contain the reply: headers, messages, an error, trailers, delays. The
// reply contains the requests as they arrived.
type service struct {
	pb.UnimplementedConformanceServiceServer
}

// Unary implements pb.ConformanceServiceServer.
func (service) Unary(ctx context.Context, r *pb.UnaryRequest) (*pb.UnaryResponse, error) {
	payload, err := reply(ctx, r.GetResponseDefinition(), r)
	if err != nil {
		return nil, err
	}
	return &pb.UnaryResponse{Payload: payload}, nil
}

// IdempotentUnary implements pb.ConformanceServiceServer.
func (service) IdempotentUnary(ctx context.Context, r *pb.IdempotentUnaryRequest) (*pb.IdempotentUnaryResponse, error) {
	payload, err := reply(ctx, r.GetResponseDefinition(), r)
	if err != nil {
		return nil, err
	}
	return &pb.IdempotentUnaryResponse{Payload: payload}, nil
}

// ClientStream implements pb.ConformanceServiceServer.
func (service) ClientStream(s pb.ConformanceService_ClientStreamServer) error {
	var definition *pb.UnaryResponseDefinition
	var requests []proto.Message
	for {
		r, err := s.Recv()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
		if len(requests) == 0 {
			definition = r.GetResponseDefinition()
		}
		requests = append(requests, r)
	}
	payload, err := reply(s.Context(), definition, requests...)
	if err != nil {
		return err
	}
	return s.SendAndClose(&pb.ClientStreamResponse{Payload: payload})
}

// reply returns the only message of a reply.
func reply(
	ctx context.Context, d *pb.UnaryResponseDefinition, requests ...proto.Message,
) (*pb.ConformancePayload, error) {
	info, err := infoOf(ctx, requests)
	if err != nil {
		return nil, err
	}
	if err := setMetadata(ctx, d.GetResponseHeaders(), d.GetResponseTrailers()); err != nil {
		return nil, err
	}
	if err := wait(ctx, d.GetResponseDelayMs()); err != nil {
		return nil, err
	}
	if e := d.GetError(); e != nil {
		return nil, failure(e, info)
	}
	return &pb.ConformancePayload{Data: d.GetResponseData(), RequestInfo: info}, nil
}

// ServerStream implements pb.ConformanceServiceServer.
func (service) ServerStream(r *pb.ServerStreamRequest, s pb.ConformanceService_ServerStreamServer) error {
	out := &replies{stream: s, definition: r.GetResponseDefinition(), send: func(p *pb.ConformancePayload) error {
		return s.Send(&pb.ServerStreamResponse{Payload: p})
	}}
	if err := out.begin(true); err != nil {
		return err
	}
	return out.finish([]proto.Message{r})
}

// BidiStream implements pb.ConformanceServiceServer.
func (service) BidiStream(s pb.ConformanceService_BidiStreamServer) error {
	out := &replies{stream: s, send: func(p *pb.ConformancePayload) error {
		return s.Send(&pb.BidiStreamResponse{Payload: p})
	}}
	duplex, begun := false, false
	var requests []proto.Message
	for {
		r, err := s.Recv()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
		requests = append(requests, r)
		if !begun {
			begun, duplex, out.definition = true, r.GetFullDuplex(), r.GetResponseDefinition()
			if err := out.begin(duplex); err != nil {
				return err
			}
		}
		if !duplex {
			continue
		}
		if !out.more() {
			break
		}
		if err := out.next(requests); err != nil {
			return err
		}
		requests = nil
	}
	return out.finish(requests)
}

// replies sends the messages of a reply.
type replies struct {
	stream     grpc.ServerStream
	definition *pb.StreamResponseDefinition
	send       func(*pb.ConformancePayload) error
	sent       int
}

// begin sets the metadata, and sends the header if messages follow at once.
func (r *replies) begin(atOnce bool) error {
	d, ctx := r.definition, r.stream.Context()
	if err := setMetadata(ctx, d.GetResponseHeaders(), d.GetResponseTrailers()); err != nil {
		return err
	}
	if !atOnce || !r.more() {
		return nil
	}
	return r.stream.SendHeader(nil)
}

// more reports whether there are further messages to send.
func (r *replies) more() bool { return r.sent < len(r.definition.GetResponseData()) }

// next sends a message. The first one describes the call and its requests, later ones only further requests.
func (r *replies) next(requests []proto.Message) error {
	payload := &pb.ConformancePayload{Data: r.definition.GetResponseData()[r.sent]}
	if r.sent == 0 || len(requests) > 0 {
		info, err := infoOf(r.stream.Context(), requests)
		if err != nil {
			return err
		}
		if r.sent > 0 {
			info = &pb.ConformancePayload_RequestInfo{Requests: info.GetRequests()}
		}
		payload.RequestInfo = info
	}
	if err := wait(r.stream.Context(), r.definition.GetResponseDelayMs()); err != nil {
		return err
	}
	r.sent++
	return r.send(payload)
}

// finish sends the rest, and returns the error of the reply.
func (r *replies) finish(requests []proto.Message) error {
	if r.sent == 0 && r.more() {
		if err := r.next(requests); err != nil {
			return err
		}
	}
	for r.more() {
		if err := r.next(nil); err != nil {
			return err
		}
	}
	switch e := r.definition.GetError(); {
	case e == nil:
		return nil
	case r.sent > 0:
		return failure(e, nil)
	default:
		info, err := infoOf(r.stream.Context(), requests)
		if err != nil {
			return err
		}
		return failure(e, info)
	}
}

// failure returns an error of a reply. info is a further detail of it; nil adds none.
func failure(e *pb.Error, info *pb.ConformancePayload_RequestInfo) error {
	s := &spb.Status{Code: int32(e.GetCode()), Message: e.GetMessage(), Details: slices.Clone(e.GetDetails())}
	if info != nil {
		detail, err := anypb.New(info)
		if err != nil {
			return err
		}
		s.Details = append(s.Details, detail)
	}
	return status.FromProto(s).Err()
}

// wait waits for a delay that a request demands, as the suite's own servers do: also if the call is over. The suite's
// client gives up at the call's deadline, and reports an error that arrives at the same time as incomplete.
// TestDeadline of package server/web shows that the server keeps deadlines.
func wait(ctx context.Context, millis uint32) error {
	time.Sleep(time.Duration(millis) * time.Millisecond)
	if ctx.Err() != nil {
		return status.FromContextError(ctx.Err()).Err()
	}
	return nil
}

// queryKey is the context key of the query of a GET request.
type queryKey struct{}

// withQuery returns the context of a request with its query if its method is GET. Nothing counts the request's memory.
func withQuery(ctx context.Context, r *http.Request) (context.Context, *account.Account, error) {
	if r.Method == http.MethodGet {
		ctx = context.WithValue(ctx, queryKey{}, r.URL.Query())
	}
	return ctx, nil, nil
}

// infoOf describes a call.
func infoOf(ctx context.Context, requests []proto.Message) (*pb.ConformancePayload_RequestInfo, error) {
	info := &pb.ConformancePayload_RequestInfo{}
	for _, r := range requests {
		a, err := anypb.New(r)
		if err != nil {
			return nil, err
		}
		info.Requests = append(info.Requests, a)
	}
	md, _ := metadata.FromIncomingContext(ctx)
	for name, values := range md {
		if strings.HasPrefix(name, ":") {
			continue
		}
		h := &pb.Header{Name: name}
		for _, value := range values {
			if isBinary(name) {
				value = base64.RawStdEncoding.EncodeToString([]byte(value))
			}
			h.Value = append(h.Value, value)
		}
		info.RequestHeaders = append(info.RequestHeaders, h)
	}
	if deadline, ok := ctx.Deadline(); ok {
		info.TimeoutMs = new(max(time.Until(deadline), 0).Milliseconds())
	}
	if query, ok := ctx.Value(queryKey{}).(url.Values); ok {
		info.ConnectGetInfo = &pb.ConformancePayload_ConnectGetInfo{}
		for name, values := range query {
			info.ConnectGetInfo.QueryParams = append(info.ConnectGetInfo.QueryParams,
				&pb.Header{Name: name, Value: values})
		}
	}
	return info, nil
}

// setMetadata sets the header and the trailer of a call.
func setMetadata(ctx context.Context, header, trailer []*pb.Header) error {
	for _, part := range []struct {
		headers []*pb.Header
		set     func(context.Context, metadata.MD) error
	}{{header, grpc.SetHeader}, {trailer, grpc.SetTrailer}} {
		md := metadata.MD{}
		for _, h := range part.headers {
			for _, value := range h.GetValue() {
				if isBinary(h.GetName()) {
					data, err := base64.RawStdEncoding.DecodeString(strings.TrimRight(value, "="))
					if err != nil {
						return err
					}
					value = string(data)
				}
				md.Append(h.GetName(), value)
			}
		}
		if err := part.set(ctx, md); err != nil {
			return err
		}
	}
	return nil
}

// isBinary reports whether the values of metadata are bytes, which the suite writes in base64.
func isBinary(name string) bool { return strings.HasSuffix(strings.ToLower(name), "-bin") }

// plainStatus returns the status of an error as gRPC itself would: without the details that package server/status adds,
// because the suite compares the details of errors.
func plainStatus(err error) *status.Status {
	if st, ok := status.FromError(err); ok {
		return st
	}
	full, _ := serverstatus.Of(err)
	return status.New(full.Code(), full.Message())
}
