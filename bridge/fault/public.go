package fault

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"strings"

	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
)

// Details are sent in HTTP/2 trailers, the message twice. Several gRPC implementations refuse trailers of more than 8
// KiB in total.
const (
	maxMessage  = 1 << 10
	maxMetadata = 2 << 10
	maxData     = 1 << 10
)

// keyStderr is the metadata whose end is more useful than its beginning.
const keyStderr = "stderr"

// Public returns the part of err that a caller may see. told is false if err has no public reason: then f only
// reports an internal error, and the text of err belongs in the log. err must not be nil.
func Public(err error) (f *Error, told bool) {
	if f, ok := errors.AsType[*Error](err); ok {
		if _, public := Code(f.Reason); public {
			return clean(f), true
		}
		return New(Internal, "internal error"), false
	}
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return New(Timeout, "the deadline has passed"), true
	case errors.Is(err, context.Canceled):
		return New(Cancelled, "the call was cancelled"), true
	}
	return New(Internal, "internal error"), false
}

// Failure returns the part of err that a caller may see inside a stream. told is as in Public.
func Failure(err error) (failure *bridgev1.Failure, told bool) {
	f, told := Public(err)
	code, _ := Code(f.Reason)
	return &bridgev1.Failure{
		Code:     code,
		Reason:   f.Reason,
		Message:  f.Message,
		Field:    f.Field,
		Metadata: f.Metadata,
	}, told
}

// clean returns a copy of f that is valid in protobuf strings and in trailers.
func clean(f *Error) *Error {
	c := Error{
		Reason:     f.Reason,
		Message:    head(f.Message, maxMessage),
		Field:      head(f.Field, maxMessage),
		RetryAfter: f.RetryAfter,
	}
	if f.RPC != nil {
		c.RPC = exactRPC(*f.RPC)
	}
	if len(f.Metadata) == 0 {
		return &c
	}
	// Short values come first: a long one must not displace the session's id.
	keys := slices.SortedFunc(maps.Keys(f.Metadata), func(a, b string) int {
		return cmp.Or(cmp.Compare(len(f.Metadata[a]), len(f.Metadata[b])), cmp.Compare(a, b))
	})
	c.Metadata = make(map[string]string, len(keys))
	left := maxMetadata
	for _, k := range keys {
		cut := head
		if k == keyStderr {
			cut = tail
		}
		v := cut(f.Metadata[k], left)
		left -= len(v)
		c.Metadata[k] = v
	}
	return &c
}

// exactRPC copies a JSON-RPC error. It omits data that is too long for a trailer, since truncated data would not be
// JSON.
func exactRPC(rpc RPC) *RPC {
	out := &RPC{Code: rpc.Code, Message: head(rpc.Message, maxMetadata)}
	if len(rpc.Data) <= maxData {
		out.Data = strings.ToValidUTF8(rpc.Data, "\uFFFD")
	}
	return out
}

// head returns the beginning of s, at most limit bytes of valid UTF-8.
func head(s string, limit int) string {
	s = strings.ToValidUTF8(s, "\uFFFD")
	if len(s) <= limit {
		return s
	}
	return strings.ToValidUTF8(s[:limit], "")
}

// tail returns the end of s, at most limit bytes of valid UTF-8.
func tail(s string, limit int) string {
	s = strings.ToValidUTF8(s, "\uFFFD")
	if len(s) <= limit {
		return s
	}
	return strings.ToValidUTF8(s[len(s)-limit:], "")
}
