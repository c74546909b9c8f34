package translate_test

import (
	"bytes"
	"iter"
	"math/rand/v2"
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/dynamicpb"

	"github.com/copilot-grpc/copilot-grpc/bridge/translate"
	"github.com/copilot-grpc/copilot-grpc/internal/testing/reference"
	"github.com/copilot-grpc/copilot-grpc/internal/testing/testproto"
)

func pick(which byte) int { return int(which) % len(testproto.Names) }

// fuzzed returns the seeds of fuzzing: a few of the inputs of TestBothImplementationsAgree, so that a short run also
// tries new inputs.
func fuzzed() iter.Seq2[int, string] {
	return func(yield func(int, string) bool) {
		for i := 0; i < len(seeds); i += 9 {
			if !yield(i, seeds[i]) {
				return
			}
		}
	}
}

// FuzzExactRoundTrip looks for a JSON value that does not survive the way to
// wire bytes and back, or of which the reference makes something else, as any
// message of the CLI or of testproto. Limits keep what it may cost in bounds.
func FuzzExactRoundTrip(f *testing.F) {
	types := everyMessage()
	for i, seed := range fuzzed() {
		f.Add(uint16(i), []byte(seed))
		f.Add(uint16(len(types)-1-i%len(testproto.Names)), []byte(seed))
	}
	for i := 0; i < len(types); i += 397 {
		g := &generator{Rand: rand.New(rand.NewPCG(3, uint64(i)))}
		f.Add(uint16(i), []byte(g.message(types[i], 3)))
	}
	f.Fuzz(func(t *testing.T, which uint16, text []byte) {
		if len(text) < 1<<12 { // the reference is slow
			checkBoth(t, types[int(which)%len(types)], text, translate.Exact)
		}
	})
}

// FuzzShaped is the same for JSON made after the message's descriptor and then
// spoilt, which bytes alone hardly ever become.
func FuzzShaped(f *testing.F) {
	types := everyMessage()
	for i := range len(mutations) {
		f.Add(uint16(131*i), uint64(i), uint8(i))
	}
	f.Fuzz(func(t *testing.T, which uint16, seed uint64, spoils uint8) {
		g := &generator{Rand: rand.New(rand.NewPCG(seed, uint64(which)))}
		md := types[int(which)%len(types)]
		text := g.message(md, 4)
		for range spoils % 8 {
			text, _ = spoilt(g.Rand, text)
		}
		if len(text) < 1<<14 {
			checkBoth(t, md, []byte(text), translate.Fidelity(spoils>>7))
		}
	})
}

// FuzzDifferential looks for JSON on which the two implementations disagree.
func FuzzDifferential(f *testing.F) {
	for i, seed := range fuzzed() {
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
// make more than its limit, and must agree with the reference about messages;
// what it makes has to survive the way to wire bytes and back.
func FuzzWire(f *testing.F) {
	types := everyMessage()
	first := uint16(len(types) - len(testproto.Names))
	for i, seed := range fuzzed() {
		for _, which := range []uint16{uint16(i), first + uint16(i%len(testproto.Names)), first} {
			md := types[which]
			if wire, err := table(f, md).AppendWire(nil, []byte(seed), translate.Exact); err == nil {
				f.Add(which, wire)
				f.Add(which, bytes.Repeat(wire, 2))
			}
		}
	}
	f.Add(first+1, []byte("\xca\x3e\x0200\xca\x3e\x02{}"))
	limited := translate.NewSet(translate.WithLimits(translate.Limits{MaxDepth: 50, MaxInput: 1 << 16,
		MaxOutput: 1 << 16}))
	f.Fuzz(func(t *testing.T, which uint16, wire []byte) {
		md := types[int(which)%len(types)]
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
		if err == nil {
			checkStable(t, md, got)
		}
	})
}

// checkStable makes sure that JSON which came from wire bytes stays itself.
func checkStable(t *testing.T, md protoreflect.MessageDescriptor, text []byte) {
	t.Helper()
	wire, err := table(t, md).AppendWire(nil, text, translate.Exact)
	if err != nil {
		return // null for a message without a field to keep it in
	}
	back, err := table(t, md).AppendJSON(nil, wire, translate.JSONOptions{})
	if err != nil || canonical(t, back) != canonical(t, text) {
		t.Fatalf("%s: not stable:\n was %q\n got %q, %v", md.Name(), text, back, err)
	}
}
