package translate_test

import (
	"encoding/json"
	"errors"
	"maps"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/copilot-grpc/copilot-grpc/bridge/translate"
	"github.com/copilot-grpc/copilot-grpc/internal/testing/reference"
)

const someEvent = `{"type":"t","data":{"a":"}]\\\"{"},"ephemeral":true,"id":"i","timestamp":"x","parentId":null,"agentId":"g"}`

func TestScanFrame(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name string
		body string
		kind translate.FrameKind
		want map[string]string
	}{
		{"event", `{"jsonrpc":"2.0","method":"session.event","params":{"sessionId":"s","event":` + someEvent + `}}`,
			translate.FrameNotification,
			map[string]string{"method": "session.event", "sessionId": "s", "event": someEvent, "type": "t", "id": "i",
				"agentId": "g", "ephemeral": "true", "data": `{"a":"}]\\\"{"}`}},
		{"event, params first",
			` { "params" : {"event":` + someEvent + ` , "sessionId":"s" } , "method" : "session.event" } `,
			translate.FrameNotification,
			map[string]string{"sessionId": "s", "event": someEvent, "type": "t"}},
		{"event, params twice",
			`{"method":"session.event","params":{"sessionId":"s","event":` + someEvent +
				`},"params":{"sessionId":"z"}}`, translate.FrameNotification,
			map[string]string{"sessionId": "z", "event": "", "type": ""}},
		{"event, escapes",
			`{"method":"session\u002eevent","params":{"session\u0049d":"\u0073","event":{"t\u0079pe":"a\nb","id":5,"ephemeral":false}}}`, translate.FrameNotification,
			map[string]string{"method": "session.event", "sessionId": "s", "type": "a\nb", "id": "",
				"ephemeral": "false"}},
		{"event, odd members", `{"method":"session.event","params":{"sessionId":5,"event":[1]}}`,
			translate.FrameNotification,
			map[string]string{"sessionId": "", "event": "", "params": `{"sessionId":5,"event":[1]}`}},
		{"event, no params", `{"method":"session.event"}`, translate.FrameNotification,
			map[string]string{"event": "", "params": ""}},
		{"request", `{"jsonrpc":"2.0","id":7,"method":"hooks.invoke","params":{"sessionId":"s"}}`,
			translate.FrameRequest,
			map[string]string{"method": "hooks.invoke", "frameId": "7", "params": `{"sessionId":"s"}`,
				"sessionId": ""}},
		{"response", `{"id":"a\"","result":{"x":[1,"]"]}}`, translate.FrameResponse,
			map[string]string{"frameId": `"a\""`, "result": `{"x":[1,"]"]}`}},
		{"null response", `{"id":1,"result":null}`, translate.FrameResponse, map[string]string{"result": "null"}},
		{"error", `{"id":1,"error":{"code":-32603,"message":"m"}}`, translate.FrameResponse,
			map[string]string{"error": `{"code":-32603,"message":"m"}`}},
		{"long strings",
			`{"method":"m","x":"` + strings.Repeat(`\\`, 40) + `","params":"` + strings.Repeat(`a\"`, 40) + `"}`,
			translate.FrameNotification,
			map[string]string{"params": `"` + strings.Repeat(`a\"`, 40) + `"`}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			f, err := translate.ScanFrame([]byte(tt.body))
			if err != nil {
				t.Fatal(err)
			}
			if f.Kind != tt.kind {
				t.Errorf("kind = %v, want %v", f.Kind, tt.kind)
			}
			got := frameParts(f)
			for part, want := range tt.want {
				if got[part] != want {
					t.Errorf("%s = %q, want %q", part, got[part], want)
				}
			}
		})
	}
}

func frameParts(f translate.Frame) map[string]string {
	parts := map[string]string{
		"method": string(f.Method), "frameId": string(f.ID), "params": string(f.Params), "result": string(f.Result),
		"error": string(f.Error), "sessionId": string(f.SessionID), "event": string(f.Event.Raw),
		"type": string(f.Event.Type),
		"id":   string(f.Event.ID), "agentId": string(f.Event.AgentID), "data": string(f.Event.Data),
		"ephemeral": "false",
	}
	if f.Event.Ephemeral {
		parts["ephemeral"] = "true"
	}
	return parts
}

func TestScanFrameErrors(t *testing.T) {
	t.Parallel()
	for _, body := range []string{
		``, `[]`, `null`, `{`, `{}`, `{"id":1}`, `{"method":"m"`, `{"method":"m"}}`, `{"method":"m",}`,
		`{"method" "m"}`, `{"method":}`,
		`{"method":"m","params":{"a":[1}`, `{"method":"m\"}`, `{"params":{"event":{},`, `{"method":5,"id":1}`,
		`{"method":"session.event","params":{"event":{"a"}}}`,
		`{"params":{"event":{"a"}},"method":"session.event"}`,
	} {
		if f, err := translate.ScanFrame([]byte(body)); !errors.As(err, new(*translate.Error)) {
			t.Errorf("ScanFrame(%q) = %+v, %v", body, f, err)
		}
	}
}

// The scan has a fast path for the CLI's usual form of events. A space before the message avoids that path.
func TestScanFrameCommonForm(t *testing.T) {
	t.Parallel()
	const head = `{"jsonrpc":"2.0","method":"session.event","params":`
	for _, rest := range []string{
		`{"sessionId":"s","event":` + someEvent + `}}`, `{"sessionId":"s","event":` + someEvent + `}} `,
		`{"sessionId":"s"}}`, `{}}`,
		`{"sessionId":"s","event":` + someEvent + `},"id":1}`,
		`{"sessionId":"s","event":` + someEvent + `},"params":{"sessionId":"z"}}`,
		`{"sessionId":"s","event":` + someEvent + `},"method":"m"}`,
		`{"event":{"type":"t"},"event":null,"sessionId":5}}`, `null}`, `[]}`,
		`{"sessionId":"s","event":` + someEvent + `}`, `{"sessionId":"s","event":` + someEvent + `}}}`,
		`{"sessionId":"s","event":{"a"}}}`, ``,
	} {
		got, err := translate.ScanFrame([]byte(head + rest))
		want, wantErr := translate.ScanFrame([]byte(" " + head + rest))
		if got.Kind != want.Kind || !maps.Equal(frameParts(got), frameParts(want)) || (err == nil) != (wantErr == nil) {
			t.Errorf("%q: %+v, %v, want %+v, %v", rest, got, err, want, wantErr)
		}
	}
}

func TestScanEvent(t *testing.T) {
	t.Parallel()
	h, err := translate.ScanEvent([]byte(" " + someEvent + "\n"))
	if err != nil || string(h.Raw) != someEvent || string(h.Type) != "t" || !h.Ephemeral {
		t.Errorf("ScanEvent = %+v, %v", h, err)
	}
	if _, err := translate.ScanEvent([]byte(someEvent + "x")); err == nil {
		t.Error("ScanEvent accepts trailing text")
	}
}

// FuzzScanFrame compares the scan of well-formed frames with what encoding/json
// finds, and sees to it that the others do no harm.
func FuzzScanFrame(f *testing.F) {
	for _, p := range payloads() {
		f.Add(p.frame)
	}
	f.Add([]byte(`{"params":{"event":` + someEvent + `,"sessionId":"\u0073"},"method":"session.event","id":null}`))
	r := rand.New(rand.NewPCG(1, 1))
	for range 20 {
		b := append([]byte(nil), payloads()[r.IntN(2)].frame...)
		b[r.IntN(len(b))] = `"\{}[],:x`[r.IntN(9)]
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		got, err := translate.ScanFrame(body)
		if !json.Valid(body) || reference.Repeats(body) {
			return
		}
		var want struct{ ID, Method, Params, Result, Error json.RawMessage }
		var exact map[string]json.RawMessage
		if json.Unmarshal(body, &exact) != nil {
			return
		}
		want.ID, want.Method, want.Params, want.Result, want.Error = exact["id"], exact["method"], exact["params"], exact["result"], exact["error"]
		if err != nil {
			if want.Result != nil || want.Error != nil {
				t.Fatalf("ScanFrame(%q): %v", body, err)
			}
			return
		}
		if string(got.ID) != string(want.ID) || string(got.Params) != string(want.Params) ||
			string(got.Result) != string(want.Result) || string(got.Error) != string(want.Error) {
			t.Fatalf("ScanFrame(%q) = %+v", body, frameParts(got))
		}
		var params, event map[string]json.RawMessage
		if string(got.Method) != "session.event" || json.Unmarshal(want.Params, &params) != nil ||
			json.Unmarshal(params["event"], &event) != nil {
			return
		}
		if event != nil &&
			(string(got.Event.Raw) != string(params["event"]) || string(got.Event.Data) != string(event["data"])) {
			t.Fatalf("ScanFrame(%q) = %+v", body, frameParts(got))
		}
	})
}
