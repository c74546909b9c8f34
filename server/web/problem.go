package web

import (
	"bytes"
	"encoding/json"
	"net/http"

	"connectrpc.com/connect/v2"
	"connectrpc.com/connect/v2/connectproto"
)

// problem converts the error of a call to one that connect sends, with the same code, text and details as gRPC's; nil
// stays nil.
func (h *Handler) problem(err error) error {
	if err == nil {
		return nil
	}
	st := h.config.Status(err)
	e := connect.NewError(connect.Code(st.Code()), st.Message())
	for _, any := range st.Proto().GetDetails() {
		if detail, err := connectproto.NewErrorDetail(any); err == nil {
			e = e.WithDetail(detail)
		}
	}
	return e
}

// line is the JSON of the end of lines or events.
type line struct {
	// Error is that of a failed unary call of Connect; nil without one.
	Error json.RawMessage `json:"error,omitempty"`
	// Metadata has the trailers.
	Metadata map[string][]string `json:"metadata,omitempty"`
}

// errorText returns the JSON of the error of a call, as in the body of a failed unary call of Connect.
func (h *Handler) errorText(r *http.Request, err error) []byte {
	text := &buffer{header: http.Header{}}
	h.refuse(text, r, err)
	return text.Bytes()
}

// buffer is an http.ResponseWriter for the body of a response.
type buffer struct {
	bytes.Buffer
	header http.Header
}

// Header implements http.ResponseWriter.
func (b *buffer) Header() http.Header { return b.header }

// WriteHeader implements http.ResponseWriter.
func (*buffer) WriteHeader(int) {}
