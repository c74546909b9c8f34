package rpcconn

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"

	"github.com/sourcegraph/jsonrpc2"
)

// TestLibraryUnderstands has sourcegraph/jsonrpc2 at the other end: calls, errors and
// notifications pass in both directions.
func TestLibraryUnderstands(t *testing.T) {
	t.Parallel()
	mine, theirs := net.Pipe()
	told := make(chan string, 2)
	c := New(mine, Options{
		Request:      echoRequest,
		Notification: func(method string, params []byte) { told <- method + string(params) },
	})
	handle := func(_ context.Context, _ *jsonrpc2.Conn, r *jsonrpc2.Request) (any, error) {
		switch {
		case r.Notif:
			told <- r.Method + string(*r.Params)
			return nil, nil
		case r.Method == "fail":
			return nil, &jsonrpc2.Error{Code: -5, Message: "no", Data: r.Params}
		}
		return r.Params, nil
	}
	lib := jsonrpc2.NewConn(t.Context(), jsonrpc2.NewBufferedStream(theirs, jsonrpc2.VSCodeObjectCodec{}),
		jsonrpc2.HandlerWithError(handle))
	t.Cleanup(func() { _ = lib.Close(); c.Wait() })

	const params = `{"a":[1,"x"]}`
	if got, err := c.Call(t.Context(), "echo", []byte(params)); err != nil || string(got) != params {
		t.Errorf("our call gave %s, %v", got, err)
	}
	var bad *Error
	if _, err := c.Call(t.Context(), "fail", []byte(params)); !errors.As(err, &bad) || bad.Code != -5 ||
		string(bad.Data) != params {
		t.Errorf("our failing call gave %v", err)
	}
	var got json.RawMessage
	if err := lib.Call(t.Context(), "echo", json.RawMessage(params), &got); err != nil || string(got) != params {
		t.Errorf("the library's call gave %s, %v", got, err)
	}
	if err := errors.Join(c.Notify(t.Context(), "n", []byte(params)),
		lib.Notify(t.Context(), "n", json.RawMessage(params))); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if got := <-told; got != "n"+params {
			t.Errorf("told %s", got)
		}
	}
}

// libraryStream gives sourcegraph/jsonrpc2 the frames of this package: capped, without events, and
// written from bytes that exist already, so that the library neither encodes nor frames anything.
type libraryStream struct {
	frames *frameReader
	conn   net.Conn
	frame  []byte
}

func (s *libraryStream) onSend(r *jsonrpc2.Request, _ *jsonrpc2.Response) {
	s.frame = r.ExtraFields[0].Value.([]byte)
}

func (s *libraryStream) WriteObject(any) error {
	_, err := s.conn.Write(s.frame)
	return err
}

func (s *libraryStream) ReadObject(v any) error {
	for {
		body, err := s.frames.next()
		if err != nil {
			return err
		}
		if !isCanonicalEvent(body) {
			return v.(json.Unmarshaler).UnmarshalJSON(body)
		}
	}
}

func (s *libraryStream) Close() error { return s.conn.Close() }

// BenchmarkRoundTrip compares a call of this package with one of the library on this package's
// frames; docs/adr/0002 has the result.
func BenchmarkRoundTrip(b *testing.B) {
	params := []byte(`{"sessionId":"0195f0ab-0000-7000-8000-000000000000","requestId":"r","result":{"kind":"approve-once"}}`)
	for _, size := range []int{100, 4 << 10, 64 << 10, 1 << 20} {
		entry := `{"type":"assistant.message","data":{"content":"` + strings.Repeat("word ", 15) + `"}}`
		result := json.RawMessage("[" + strings.Repeat(entry+",", max(0, size/len(entry)-1)) + entry + "]")
		peer := func(conn net.Conn) *Conn {
			return New(conn,
				Options{Request: func(context.Context, *Request) (json.RawMessage, error) { return result, nil }})
		}
		b.Run(fmt.Sprintf("ours/%d", size), func(b *testing.B) {
			mine, theirs := net.Pipe()
			c, other := New(mine, Options{}), peer(theirs)
			defer func() { _ = c.Close(); c.Wait(); other.Wait() }()
			b.ReportAllocs()
			for b.Loop() {
				if got, err := c.Call(b.Context(), "m", params); err != nil || len(got) != len(result) {
					b.Fatal(err)
				}
			}
		})
		b.Run(fmt.Sprintf("library/%d", size), func(b *testing.B) {
			mine, theirs := net.Pipe()
			other := peer(theirs)
			s := &libraryStream{frames: newFrameReader(mine, DefaultMaxFrame), conn: mine}
			c := jsonrpc2.NewConn(b.Context(), s, jsonrpc2.HandlerWithError(nil), jsonrpc2.OnSend(s.onSend))
			defer func() { _ = c.Close(); other.Wait() }()
			b.ReportAllocs()
			for id := uint64(1); b.Loop(); id++ {
				var got json.RawMessage
				err := c.Call(b.Context(), "m", nil, &got, jsonrpc2.PickID(jsonrpc2.ID{Num: id}),
					jsonrpc2.ExtraField("frame", requestFrame(id, "m", params)))
				if err != nil || len(got) != len(result) {
					b.Fatal(err)
				}
			}
		})
	}
}
