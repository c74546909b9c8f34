package rpcconn

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/copilot-grpc/copilot-grpc/bridge/translate"
)

func TestParseMessage(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]*message{
		`{}`:   {},
		`{ } `: {},
		`{"jsonrpc":"2.0","id":1,"method":"m","params":{"a":[{}]}}`: {id: []byte(`1`),
			method: []byte(`"m"`), params: []byte(`{"a":[{}]}`)},
		" {\t\"params\" :\r\n[ ] , \"method\" : \"m\\\"\" } ": {method: []byte(`"m\""`),
			params: []byte(`[ ]`)},
		`{"id":"a\\","result":null}`: {id: []byte(`"a\\"`),
			result: []byte(`null`)},
		`{"id":-1.5e3,"error":{"code":1,"message":"}{"}}`: {id: []byte(`-1.5e3`),
			err: []byte(`{"code":1,"message":"}{"}`)},
		`{"\u0069d":7,"x":{"id":8,"method":"no"}}`:                               {id: []byte(`7`)},
		`{"method":"a","method":"b"}`:                                            {method: []byte(`"b"`)},
		`{"deep":` + strings.Repeat("[", 9000) + strings.Repeat("]", 9000) + `}`: {},
		``: nil, ` `: nil, `[]`: nil, `1`: nil, `{`: nil, `{"a"`: nil, `{"a":`: nil, `{"a":1`: nil, `{"a":1,`: nil,
		`{"a":1,}`: nil,
		`{"a":1}x`: nil, `{}{}`: nil, `{"a" 1}`: nil, `{a:1}`: nil, `{"a":1 "b":2}`: nil, `{"a":}`: nil,
		`{"a":[}]}`: nil, `{"a":"\"}`: nil, `{,}`: nil,
		`{"deep":` + strings.Repeat("[", 10001) + strings.Repeat("]", 10001) + `}`: nil,
	} {
		got, ok := parseMessage([]byte(in))
		if ok != (want != nil) {
			t.Errorf("%.60q: ok = %v", in, ok)
			continue
		}
		if want != nil && !sameMessage(got, *want) {
			t.Errorf("%.60q: got %q, want %q", in, got, *want)
		}
	}
}

func sameMessage(a, b message) bool {
	return bytes.Equal(a.id, b.id) && bytes.Equal(a.method, b.method) && bytes.Equal(a.params, b.params) &&
		bytes.Equal(a.result, b.result) && bytes.Equal(a.err, b.err)
}

func TestCanonicalEvent(t *testing.T) {
	t.Parallel()
	for body, want := range map[string]bool{
		event(1): true,
		`{"jsonrpc":"2.0","method":"session.event","params":{"sessionId":"s"},"id":1}`:     false,
		`{"jsonrpc":"2.0","method":"session.event","id":1,"params":{"event":{}}}`:          false,
		`{"jsonrpc":"2.0","method":"session.events","params":{"a":{}}}`:                    false,
		`{"method":"session.event","jsonrpc":"2.0","params":{"sessionId":"s","event":{}}}`: false,
	} {
		if got := isCanonicalEvent([]byte(body)); got != want {
			t.Errorf("%s: %v", body, got)
		}
	}
}

// FuzzMessage compares with encoding/json on what that accepts, and checks that
// nothing it refuses can be split into a value and a rest.
func FuzzMessage(f *testing.F) {
	for _, seed := range []string{event(1), `{"id":1,"result":{"a":"\\\""}}`, `{"id":"x","error":{}}`, `[1,{"a":[]}]`,
		`{} {}`, `"\"`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		valid := json.Valid(in)
		one := translate.Check(in, maxDepth) == nil
		if valid && utf8.Valid(in) && !one {
			t.Fatalf("refused %q", in)
		}
		if one && json.Valid(append(append([]byte(`{"p":`), in...), `,"q":1}`...)) != valid {
			t.Fatalf("%q breaks out of a message", in)
		}
		got, ok := parseMessage(in)
		var want map[string]json.RawMessage
		if json.Unmarshal(in, &want) != nil || want == nil {
			return
		}
		if !ok {
			t.Fatalf("no message: %q", in)
		}
		if !bytes.Equal(got.id, want["id"]) || !bytes.Equal(got.params, want["params"]) ||
			!bytes.Equal(got.method, want["method"]) {
			t.Fatalf("%q: got %q, want %q", in, got, want)
		}
	})
}

func TestFramesWritten(t *testing.T) {
	t.Parallel()
	for got, want := range map[string]string{
		string(requestFrame(12, "m",
			[]byte(`{}`))): `{"jsonrpc":"2.0","id":12,"method":"m","params":{}}`,
		string(requestFrame(0, "n",
			nil)): `{"jsonrpc":"2.0","method":"n"}`,
		string(requestFrame(1, "é\n",
			nil)): `{"jsonrpc":"2.0","id":1,"method":"é\n"}`,
		string(resultFrame(`"x"`,
			nil)): `{"jsonrpc":"2.0","id":"x","result":null}`,
		string(resultFrame(`-3`,
			[]byte(`{"b":1,"a":"<"}`))): `{"jsonrpc":"2.0","id":-3,"result":{"b":1,"a":"<"}}`,
		string(errorFrame(`1`,
			&Error{Code: -5, Message: `a "b"`,
				Data: []byte(`{"r":1}`)})): `{"jsonrpc":"2.0","id":1,"error":{"code":-5,"message":"a \"b\"","data":{"r":1}}}`,
		string(errorFrame(`1`, &Error{Data: []byte(`}`)})): `{"jsonrpc":"2.0","id":1,"error":{"code":0,"message":""}}`,
	} {
		if want := string(framed(want)); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
