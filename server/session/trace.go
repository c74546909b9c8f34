package session

import (
	"context"

	"google.golang.org/grpc/metadata"

	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
)

// traced gives a prompt that names no trace context the call's own, as the caller sent
// it in the headers of the W3C recommendation.
func traced(ctx context.Context, p *bridgev1.Prompt) *bridgev1.Prompt {
	if p == nil || p.GetTraceparent() != "" {
		return p
	}
	md, _ := metadata.FromIncomingContext(ctx)
	if parent := md.Get("traceparent"); len(parent) == 1 {
		p.Traceparent = parent[0]
		if state := md.Get("tracestate"); len(state) == 1 {
			p.Tracestate = state[0]
		}
	}
	return p
}
