package forward

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"go.opentelemetry.io/otel/propagation"
	"google.golang.org/grpc/metadata"

	"github.com/copilot-grpc/copilot-grpc/bridge/caller"
	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
)

const (
	// MetadataCaller is the metadata of a relayed call with its caller. Only other replicas may send it.
	MetadataCaller = "copilot-forwarded-caller-bin"
	// HeaderOwner is the response header with the name of the replica that has the session.
	HeaderOwner = "copilot-owner-node"

	// trailerRefused is the trailer of a call that the receiver refused before it began; only replicas see it.
	trailerRefused = "copilot-forward-refused"
)

// passport is a caller as MetadataCaller has it, in JSON. The class of the call is not in it: the owner derives the
// class from the method.
type passport struct {
	Tenant   string `json:"tenant"`
	Name     string `json:"name"`
	Identity string `json:"identity"`
	Peer     string `json:"peer"`
	Role     string `json:"role"`
	Confined bool   `json:"confined"`
}

// seal returns the value of MetadataCaller for a caller.
func seal(who caller.Caller) string {
	text, _ := json.Marshal(passport{who.Tenant, who.Name, who.Identity, who.Peer, who.Role.String(), who.Confined})
	return string(text) // it has only strings and a bool
}

// CallerOf returns the caller of a relayed call from its metadata. The connection must be of a replica.
func CallerOf(ctx context.Context) (caller.Caller, error) {
	values := metadata.ValueFromIncomingContext(ctx, MetadataCaller)
	if len(values) != 1 {
		return caller.Caller{}, fault.New(fault.Unauthenticated, "the metadata %q occurs %d times, not once",
			MetadataCaller, len(values))
	}
	var p passport
	if err := json.Unmarshal([]byte(values[0]), &p); err != nil {
		return caller.Caller{}, fault.New(fault.Unauthenticated, "the metadata %q is malformed", MetadataCaller)
	}
	role, ok := caller.ParseRole(p.Role)
	if !ok || p.Tenant != caller.HostTenant && !caller.ValidTenant(p.Tenant) {
		return caller.Caller{}, fault.New(fault.Unauthenticated, "the metadata %q has an unknown role or tenant",
			MetadataCaller)
	}
	return caller.Caller{Tenant: p.Tenant, Name: p.Name, Identity: p.Identity, Peer: p.Peer, Role: role,
		Confined: p.Confined}, nil
}

// Refuse returns FORBIDDEN if a call has metadata that only replicas may send. Listeners for callers use it.
func Refuse(ctx context.Context) error {
	if len(metadata.ValueFromIncomingContext(ctx, MetadataCaller)) > 0 {
		return fault.New(fault.Forbidden, "only replicas may send the metadata %q", MetadataCaller)
	}
	return nil
}

// private are the metadata of a call that concern only the replica where it enters: credentials, what selected the
// tenant, and the metadata of each connection.
var private = map[string]bool{
	"authorization": true, "proxy-authorization": true, "cookie": true, "copilot-tenant": true, "origin": true,
	"content-type": true, "user-agent": true, "host": true, "connection": true, "te": true, "traceparent": true,
	"tracestate": true, MetadataCaller: true, "x-forwarded-client-cert": true,
}

// outgoing returns the metadata with which a call is relayed.
func outgoing(ctx context.Context) metadata.MD {
	in, _ := metadata.FromIncomingContext(ctx) // a copy
	for key := range in {
		if private[key] || strings.HasPrefix(key, ":") || strings.HasPrefix(key, "grpc-") {
			delete(in, key)
		}
	}
	if in == nil {
		in = metadata.MD{}
	}
	in.Set(MetadataCaller, seal(caller.From(ctx)))
	traces := propagation.MapCarrier{}
	propagation.TraceContext{}.Inject(ctx, traces) // the owner's spans become children of the entry's
	for key, value := range traces {
		in.Set(key, value)
	}
	return in
}

// notOwner is the error for a session that a replica does not have.
func notOwner(node, session string) error {
	return fault.New(fault.SessionUnavailable, "the replica %q does not have the session %q: try again", node, session).
		With("session_id", session).WithRetry(retryAfter)
}

// unreachable is the error for a call that could not be relayed; session is "" for a call about none. why contains no
// address.
func unreachable(session, format string, why ...any) error {
	if session == "" {
		return fault.New(fault.SessionUnavailable, "another replica cannot be used at the moment: %s",
			fmt.Sprintf(format, why...)).WithRetry(retryAfter)
	}
	return fault.New(fault.SessionUnavailable, "the session %q cannot be used at the moment: %s", session,
		fmt.Sprintf(format, why...)).With("session_id", session).WithRetry(retryAfter)
}
