package translate_test

import (
	"bytes"
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/dynamicpb"

	"github.com/copilot-grpc/copilot-grpc/bridge/translate"
	"github.com/copilot-grpc/copilot-grpc/bridge/translate/internal/testproto"
	"github.com/copilot-grpc/copilot-grpc/bridge/translate/reference"
)

func pick(which byte) int { return int(which) % len(testproto.Names) }

// FuzzExactRoundTrip looks for a JSON value that does not survive the way to
// wire bytes and back.
func FuzzExactRoundTrip(f *testing.F) {
	for i, seed := range seeds {
		f.Add(byte(i), []byte(seed))
		f.Add(byte(0), []byte(seed))
	}
	f.Fuzz(func(t *testing.T, which byte, text []byte) {
		md := testproto.Message(testproto.Names[pick(which)])
		tb := table(t, md)
		wire, err := tb.AppendWire(nil, text, translate.Exact)
		if err != nil {
			return
		}
		back, err := tb.AppendJSON(nil, wire, translate.JSONOptions{})
		if err != nil {
			t.Fatalf("%s: AppendJSON after %q: %v", md.Name(), text, err)
		}
		if canonical(t, back) != canonical(t, text) {
			t.Fatalf("%s: there and back:\n was %q\n got %q", md.Name(), text, back)
		}
	})
}

// FuzzDifferential looks for JSON on which the two implementations disagree.
func FuzzDifferential(f *testing.F) {
	for i, seed := range seeds {
		f.Add(byte(i), true, []byte(seed))
		f.Add(byte(0), false, []byte(seed))
	}
	f.Fuzz(func(t *testing.T, which byte, exact bool, text []byte) {
		fidelity := translate.Tidy
		if exact {
			fidelity = translate.Exact
		}
		checkBoth(t, testproto.Message(testproto.Names[pick(which)]), text, fidelity)
	})
}

// FuzzWire feeds arbitrary bytes to the way back: it must not panic, must not
// make more than its limit, and must agree with the reference about messages.
func FuzzWire(f *testing.F) {
	for i, seed := range seeds {
		which := byte(i)
		for _, which := range []byte{which, 0} {
			md := testproto.Message(testproto.Names[pick(which)])
			if wire, err := table(f, md).AppendWire(nil, []byte(seed), translate.Exact); err == nil {
				f.Add(which, wire)
				f.Add(which, bytes.Repeat(wire, 2))
			}
		}
	}
	f.Add(byte(1), []byte("\xca\x3e\x0200\xca\x3e\x02{}"))
	limited := translate.NewSet(translate.WithLimits(translate.Limits{MaxDepth: 50, MaxInput: 1 << 16, MaxOutput: 1 << 16}))
	f.Fuzz(func(t *testing.T, which byte, wire []byte) {
		md := testproto.Message(testproto.Names[pick(which)])
		small, err := limited.Table(md)
		if err != nil {
			t.Fatal(err)
		}
		if out, err := small.AppendJSON(nil, wire, translate.JSONOptions{}); err == nil && len(out) > 1<<20 {
			t.Fatalf("%d bytes of output from %d", len(out), len(wire))
		}
		got, err := table(t, md).AppendJSON(nil, wire, translate.JSONOptions{})
		m := dynamicpb.NewMessage(md)
		if invalid := proto.Unmarshal(wire, m); invalid != nil {
			return // we read fewer fields than a parser does, and may accept more
		}
		want, refErr := reference.Decode(m)
		if err != nil && refErr == nil {
			// A bad value is refused even when a later one replaces it; a parser
			// has forgotten it. Try again without.
			if wire, err = proto.Marshal(m); err == nil {
				got, err = table(t, md).AppendJSON(nil, wire, translate.JSONOptions{})
			}
		}
		if (err == nil) != (refErr == nil) {
			t.Fatalf("%s: AppendJSON(%x) error = %v, reference %v (%q)", md.Name(), wire, err, refErr, want)
		}
		if err == nil && canonical(t, got) != canonical(t, want) {
			t.Fatalf("%s: AppendJSON(%x):\n got %q\nwant %q", md.Name(), wire, got, want)
		}
	})
}
