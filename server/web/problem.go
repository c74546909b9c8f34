package web

import (
	"encoding/base64"
	"encoding/json"

	"connectrpc.com/connect/v2"
	"connectrpc.com/connect/v2/connectproto"
	"google.golang.org/protobuf/encoding/protojson"
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

// line is the JSON of an error at the end of lines or events: as in the body of a failed unary call of Connect.
type line struct {
	Error lineError `json:"error"`
	// Metadata has the trailers.
	Metadata map[string][]string `json:"metadata,omitempty"`
}

// endOf is the JSON of the end of lines or events without an error.
type endOf struct {
	// Metadata has the trailers.
	Metadata map[string][]string `json:"metadata,omitempty"`
}

type lineError struct {
	Code    connect.Code `json:"code"`
	Message string       `json:"message,omitempty"`
	Details []lineDetail `json:"details,omitempty"`
}

type lineDetail struct {
	Type string `json:"type"`
	// Value is the message in unpadded base64, Debug the same in JSON.
	Value string          `json:"value"`
	Debug json.RawMessage `json:"debug,omitempty"`
}

// lineOf returns the last line for an error; nil if there is none.
func (h *Handler) lineOf(err error) *line {
	if err == nil {
		return nil
	}
	st := h.config.Status(err)
	l := &line{Error: lineError{Code: connect.Code(st.Code()), Message: st.Message()}}
	for _, any := range st.Proto().GetDetails() {
		d := lineDetail{Type: string(any.MessageName()), Value: base64.RawStdEncoding.EncodeToString(any.GetValue())}
		if m, err := any.UnmarshalNew(); err == nil {
			d.Debug, _ = protojson.Marshal(m) // best effort, as in Connect
		}
		l.Error.Details = append(l.Error.Details, d)
	}
	return l
}
