package inbox

import (
	"testing"

	"github.com/copilot-grpc/copilot-grpc/bridge/fields"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
)

func TestModelParts(t *testing.T) {
	t.Parallel()
	head := func(h *bridgev1.ModelResponseHead) *bridgev1.ModelResponse {
		return &bridgev1.ModelResponse{RequestId: "q", Part: &bridgev1.ModelResponse_Head{Head: h}}
	}
	chunk := func(c *bridgev1.ModelResponseChunk) *bridgev1.ModelResponse {
		return &bridgev1.ModelResponse{RequestId: "q", Part: &bridgev1.ModelResponse_Chunk{Chunk: c}}
	}
	for name, test := range map[string]struct {
		r         *bridgev1.ModelResponse
		want      string
		end, fail bool
		field     string
	}{
		"a head":        {r: head(&bridgev1.ModelResponseHead{Status: 200}), want: `{"status":200,"headers":{}}`},
		"with its text": {r: head(&bridgev1.ModelResponseHead{Status: 404, StatusText: "no"}), want: `{"status":404,"headers":{},"statusText":"no"}`},
		"a text":        {r: chunk(&bridgev1.ModelResponseChunk{Data: &bridgev1.ModelResponseChunk_Text{Text: "x"}}), want: `{"data":"x"}`},
		"bytes":         {r: chunk(&bridgev1.ModelResponseChunk{Data: &bridgev1.ModelResponseChunk_Binary{Binary: []byte{0xff}}}), want: `{"data":"/w==","binary":true}`},
		"the end":       {r: chunk(&bridgev1.ModelResponseChunk{End: true}), want: `{"data":"","end":true}`, end: true},
		"a failure": {
			r:    chunk(&bridgev1.ModelResponseChunk{Error: &bridgev1.ModelResponseError{Message: "m"}}),
			want: `{"data":"","error":{"message":"m"}}`, end: true, fail: true,
		},
		"no request":    {r: &bridgev1.ModelResponse{}, field: "request_id"},
		"no part":       {r: &bridgev1.ModelResponse{RequestId: "q"}, field: "part"},
		"a bad status":  {r: head(&bridgev1.ModelResponseHead{Status: 99}), field: "head.status"},
		"a high status": {r: head(&bridgev1.ModelResponseHead{Status: 600}), field: "head.status"},
	} {
		part, err := modelPart(test.r)
		if test.field != "" {
			if f, ok := fields.AsFault(err); !ok || f.Field != test.field {
				t.Errorf("%s: %v, want an error about %s", name, err, test.field)
			}
			continue
		}
		if got := string(part.Params.JSON()); err != nil || got != test.want || part.End != test.end || part.Failure != test.fail {
			t.Errorf("%s: %s, end %v, failure %v, %v; want %s", name, got, part.End, part.Failure, err, test.want)
		}
	}
}
