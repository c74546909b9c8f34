package web

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"

	"connectrpc.com/connect/v2"
	"google.golang.org/grpc/metadata"

	"github.com/copilot-grpc/copilot-grpc/server/account"
)

// binary is the suffix of metadata whose values are bytes, in base64 over HTTP.
const binary = "-bin"

// authority is the metadata that contains the Host header.
const authority = ":authority"

// hidden are headers that are not metadata of a call: those of HTTP, of browsers and of the protocols. Cookies are
// credentials of the page and not of a call.
var hidden = map[string]bool{
	"accept": true, "accept-encoding": true, "accept-language": true, "cache-control": true, "connection": true,
	"content-encoding": true, "content-length": true, "content-type": true, "cookie": true, "host": true,
	"keep-alive": true, "last-event-id": true, "origin": true, "pragma": true, "priority": true, "referer": true,
	"te": true, "trailer": true, "transfer-encoding": true, "upgrade": true, "x-grpc-web": true, "x-user-agent": true,
}

// withMetadata returns a request's context with its headers as incoming metadata.
func withMetadata(r *http.Request) context.Context {
	md := make(metadata.MD, len(r.Header)+1)
	for name, values := range r.Header {
		key := strings.ToLower(name)
		switch {
		case hidden[key], strings.HasPrefix(key, "sec-"), strings.HasPrefix(key, "connect-"),
			strings.HasPrefix(key, "grpc-"):
		case strings.HasSuffix(key, binary):
			md[key] = decoded(values)
		default:
			md[key] = values
		}
	}
	md.Set(authority, r.Host)
	return metadata.NewIncomingContext(r.Context(), md)
}

// decoded decodes the values of binary metadata. It leaves out those that are not base64.
func decoded(values []string) (out []string) {
	for _, joined := range values {
		for value := range strings.SplitSeq(joined, ",") {
			if data, err := connect.DecodeBinaryHeader(strings.TrimSpace(value)); err == nil {
				out = append(out, string(data))
			}
		}
	}
	return out
}

// put adds metadata to a header.
func put(to *connect.Header, md metadata.MD) {
	for key, values := range md {
		for _, value := range values {
			if strings.HasSuffix(key, binary) {
				value = base64.RawStdEncoding.EncodeToString([]byte(value))
			}
			to.Add(key, value)
		}
	}
}

// trailersOf returns trailers by their names in lower case.
func trailersOf(from *connect.Header) map[string][]string {
	out := map[string][]string{}
	for name, values := range from.All() {
		out[strings.ToLower(name)] = values
	}
	return out
}

// isGRPC reports whether a request is a call of gRPC itself, and not of gRPC-Web.
func isGRPC(r *http.Request) bool {
	rest, ok := strings.CutPrefix(mediaType(r), "application/grpc")
	return ok && (rest == "" || rest[0] == '+')
}

// mediaType returns the media type of a request's body, without parameters.
func mediaType(r *http.Request) string {
	kind, _, _ := strings.Cut(r.Header.Get("Content-Type"), ";")
	return strings.ToLower(strings.TrimSpace(kind))
}

// mediaTypes are the media types of requests, by their beginnings.
var mediaTypes = []string{"application/json", "application/proto", "application/connect+", "application/grpc-web"}

// readable reports whether the body of a request has a media type of a protocol that this package serves.
func readable(r *http.Request) bool {
	kind := mediaType(r)
	return slices.ContainsFunc(mediaTypes, func(known string) bool { return strings.HasPrefix(kind, known) })
}

// unsupported answers a request whose media type is not served. Connect's own answer has no body, which leaves users of
// curl without a hint: curl sends a form's media type unless it is told otherwise. The text is plain, since clients take
// the code of a call from the HTTP status then, as the protocols demand.
func unsupported(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Accept-Post", "application/json, application/proto, application/connect+json, "+
		"application/connect+proto, application/grpc-web, application/grpc-web+proto")
	http.Error(w, fmt.Sprintf(
		"the Content-Type %q is not served: send the header \"Content-Type: application/json\" with a JSON body",
		r.Header.Get("Content-Type")), http.StatusUnsupportedMediaType)
}

// timeoutOf returns how long the body of a call may pause; 0 sets no limit. A client stream may pause.
func (h *Handler) timeoutOf(m *method) time.Duration {
	if m.info.IsClientStream {
		return 0
	}
	return h.config.BodyTimeout
}

// accountKey is the context key of the account of a request's memory.
type accountKey struct{}

func accountOf(ctx context.Context) *account.Account {
	a, _ := ctx.Value(accountKey{}).(*account.Account)
	return a
}

// body is the body of a request, which may pause for a limited time and is counted as it arrives.
type body struct {
	io.ReadCloser
	timeout time.Duration
	control *http.ResponseController
	memory  *account.Account
	// reply is the header of the response over HTTP/1.1, where a refused body ends the connection: the server would
	// otherwise wait for the rest of the body before it answers.
	reply http.Header
}

// bodyOf returns a request's body with a limit for its pauses; 0 sets none.
func (h *Handler) bodyOf(w http.ResponseWriter, r *http.Request, timeout time.Duration) *body {
	b := &body{ReadCloser: r.Body, timeout: timeout, control: http.NewResponseController(w),
		memory: accountOf(r.Context())}
	if r.ProtoMajor == 1 {
		b.reply = w.Header()
	}
	return b
}

// Read implements io.Reader. At the end it removes the limit, which would also end the response.
func (b *body) Read(p []byte) (int, error) {
	if b.timeout > 0 {
		_ = b.control.SetReadDeadline(time.Now().Add(b.timeout)) // recorders of tests have no deadline
	}
	n, err := b.ReadCloser.Read(p)
	if errors.Is(err, io.EOF) && b.timeout > 0 {
		_ = b.control.SetReadDeadline(time.Time{})
	}
	if refused := b.memory.Arrive(n); refused != nil {
		if b.reply != nil {
			b.reply.Set("Connection", "close")
		}
		return 0, refused
	}
	return n, err
}
