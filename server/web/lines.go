package web

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"mime"
	"net/http"
	"strconv"
	"strings"
	"time"

	"connectrpc.com/connect/v2"
	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"

	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
)

// Media types of streams for programs without a Connect library.
const (
	typeJSON   = "application/json"
	typeLines  = "application/x-ndjson"
	typeEvents = "text/event-stream"
)

// Names of query parameters and headers, as the Connect protocol has them for unary calls.
const (
	queryMessage  = "message"
	queryEncoding = "encoding"
	queryBase64   = "base64"
	headerTimeout = "Connect-Timeout-Ms"
	trailerPrefix = "Trailer-"
	maxTimeout    = 10 // digits

	// headerLastEvent is the id of the last event that an EventSource has.
	headerLastEvent = "Last-Event-ID"
)

// wantsLines reports whether a request reads a server stream as lines or server-sent events. Connect's own streams
// have a media type of their own.
func wantsLines(r *http.Request, m *method) bool {
	if m.spec.StreamType != connect.StreamTypeServer {
		return false
	}
	switch r.Method {
	case http.MethodPost:
		return mediaType(r) == typeJSON
	case http.MethodGet:
		return m.spec.IdempotencyLevel == connect.IdempotencyNoSideEffects
	}
	return false
}

// lines serves a server stream as lines or server-sent events.
func (h *Handler) lines(w http.ResponseWriter, r *http.Request, m *method) {
	kind, ok := accepted(r.Header.Values("Accept"))
	if !ok {
		w.WriteHeader(http.StatusNotAcceptable)
		return
	}
	ctx, cancel, err := withTimeout(r.Context(), r.Header.Get(headerTimeout))
	if err != nil {
		h.refuse(w, r, err)
		return
	}
	defer cancel()
	text, err := h.requestOf(w, r)
	if err != nil {
		h.refuse(w, r, received(err))
		return
	}
	s := &lineStream{w: w, info: &connect.CallInfo{}, kind: kind, request: text,
		cursor: cursor{last: r.Header.Get(headerLastEvent)}, control: http.NewResponseController(w)}
	err = h.serve(ctx, m, s, s.info)
	trailers := trailersOf(s.info.ResponseTrailer())
	switch {
	case err == nil:
		s.end(nil, trailers)
	case s.begun:
		s.end(h.errorText(r, err), trailers)
	default:
		s.copyHeader()
		for name, values := range trailers { // as in unary calls of Connect
			w.Header()[http.CanonicalHeaderKey(trailerPrefix+name)] = values
		}
		h.refuse(w, r, err)
	}
}

// accepted returns the media type that fits an Accept header best: lines unless events are wanted.
func accepted(accept []string) (kind string, ok bool) {
	if len(accept) == 0 {
		return typeLines, true
	}
	for part := range strings.SplitSeq(strings.Join(accept, ","), ",") {
		switch name, _, _ := mime.ParseMediaType(part); name {
		case typeEvents:
			return typeEvents, true
		case typeLines, typeJSON, "application/*", "*/*":
			kind = typeLines
		}
	}
	return kind, kind != ""
}

// withTimeout returns a context with the timeout of a call, in milliseconds; "" sets none.
func withTimeout(ctx context.Context, millis string) (context.Context, context.CancelFunc, error) {
	if millis == "" {
		ctx, cancel := context.WithCancel(ctx)
		return ctx, cancel, nil
	}
	n, err := strconv.ParseUint(millis, 10, 63)
	if err != nil || len(millis) > maxTimeout {
		return nil, nil, fault.New(fault.InvalidField, "the header %s must be a number of milliseconds, not %q",
			headerTimeout, millis).WithField(headerTimeout)
	}
	ctx, cancel := context.WithTimeout(ctx, time.Duration(n)*time.Millisecond) //nolint:gosec // ten digits
	return ctx, cancel, nil
}

// requestOf returns the JSON of a request: its body, or the query parameter of a GET request.
func (h *Handler) requestOf(w http.ResponseWriter, r *http.Request) ([]byte, error) {
	if r.Method == http.MethodGet {
		query := r.URL.Query()
		if encoding := query.Get(queryEncoding); encoding != "" && encoding != connect.CodecNameJSON ||
			query.Get(queryBase64) == "1" {
			return nil, fault.New(fault.InvalidField, "lines and events need %s=json without %s", queryEncoding,
				queryBase64).WithField(queryEncoding)
		}
		return []byte(query.Get(queryMessage)), nil
	}
	if encoding := r.Header.Get("Content-Encoding"); encoding != "" && encoding != connect.CompressionNameIdentity {
		return nil, grpcstatus.Errorf(codes.Unimplemented, "unknown compression %q", encoding)
	}
	body := h.bodyOf(w, r, h.config.BodyTimeout)
	return io.ReadAll(http.MaxBytesReader(w, body, int64(h.config.MaxRecvBytes)))
}

// lineStream is the connect.ServerStream of a call that is read as lines or events.
type lineStream struct {
	w        http.ResponseWriter
	control  *http.ResponseController
	info     *connect.CallInfo
	kind     string
	request  []byte // the JSON of the only request
	cursor   cursor
	received bool
	begun    bool
}

// Receive implements connect.ServerStream.
func (s *lineStream) Receive(msg any) error {
	if s.received {
		return io.EOF
	}
	s.received = true
	i, ok := msg.(*item)
	if !ok {
		return errors.New("web: not a message of a call")
	}
	if err := i.parse(s.request); err != nil {
		return err
	}
	return s.cursor.request(i.value)
}

// SendHeaders implements connect.ServerStream.
func (s *lineStream) SendHeaders() error {
	if s.begun {
		return nil
	}
	s.begun = true
	s.copyHeader()
	header := s.w.Header()
	header.Set("Content-Type", s.kind)
	header.Set("Cache-Control", "no-store")
	header.Set("X-Accel-Buffering", "no") // proxies must not hold back events
	s.w.WriteHeader(http.StatusOK)
	return s.control.Flush()
}

// copyHeader copies the header of the call to the response.
func (s *lineStream) copyHeader() {
	header := s.w.Header()
	for name, values := range s.info.ResponseHeader().All() {
		header[name] = append(header[name], values...)
	}
}

// Send implements connect.ServerStream.
func (s *lineStream) Send(msg any) error {
	i, ok := msg.(*item)
	if !ok {
		return errors.New("web: not a message of a call")
	}
	m, err := i.message()
	if err != nil {
		return err
	}
	text, err := protojson.Marshal(m)
	if err != nil {
		return err
	}
	if err := s.SendHeaders(); err != nil {
		return err
	}
	return s.write("", s.cursor.id(m), text)
}

// write writes a line or an event.
func (s *lineStream) write(name, id string, text []byte) error {
	var out bytes.Buffer
	if s.kind == typeEvents {
		if name != "" {
			out.WriteString("event: " + name + "\n")
		}
		if id != "" {
			out.WriteString("id: " + id + "\n")
		}
		out.WriteString("data: ")
	}
	// protojson puts spaces into its text at random, so that nobody relies on them.
	if err := json.Compact(&out, text); err != nil {
		return err
	}
	out.WriteByte('\n')
	if s.kind == typeEvents {
		out.WriteByte('\n')
	}
	if _, err := s.w.Write(out.Bytes()); err != nil {
		return err
	}
	return s.control.Flush()
}

// end writes the last line or event: {"error": …} for an error; a nil one means that there was none. Trailers are its
// member "metadata". A stream of events that ended without an error gets the event "end", so that a page can stop its
// EventSource, which would reconnect. Lines get {"end": …} only for trailers.
func (s *lineStream) end(failed json.RawMessage, trailers map[string][]string) {
	if s.SendHeaders() != nil {
		return // the client has gone
	}
	var last any = line{Error: failed, Metadata: trailers}
	name := "error"
	switch {
	case failed != nil:
	case s.kind == typeEvents:
		name = "end"
	case len(trailers) > 0:
		last = map[string]any{"end": last}
	default:
		return
	}
	text, _ := json.Marshal(last) // strings only
	_ = s.write(name, "", text)
}
