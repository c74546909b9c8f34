package translate_test

import (
	"bytes"
	"math/rand/v2"
	"testing"

	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	"github.com/copilot-grpc/copilot-grpc/bridge/translate"
	cliv1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/cli/v1"
	"github.com/copilot-grpc/copilot-grpc/internal/testing/race"
)

// cliMessages returns every message of copilot.cli.v1.
func cliMessages() []protoreflect.MessageDescriptor {
	var out []protoreflect.MessageDescriptor
	pkg := (*cliv1.SessionEvent)(nil).ProtoReflect().Descriptor().ParentFile().Package()
	protoregistry.GlobalFiles.RangeFilesByPackage(pkg, func(fd protoreflect.FileDescriptor) bool {
		for i := range fd.Messages().Len() {
			out = append(out, fd.Messages().Get(i))
		}
		return true
	})
	return out
}

// TestEveryMessageOfTheCLI compiles all messages and sends random values
// through each, good ones and spoilt ones.
func TestEveryMessageOfTheCLI(t *testing.T) {
	t.Parallel()
	messages := cliMessages()
	if len(messages) < 1000 {
		t.Fatalf("%d messages found", len(messages))
	}
	for i, md := range messages {
		if i%race.Sample(16) != 0 {
			continue
		}
		g := &generator{Rand: rand.New(rand.NewPCG(1, uint64(i)))}
		for n := range 6 {
			g.spoil = []float64{0, 0.05, 0.2}[n%3]
			text := []byte(g.message(md, 4))
			checkBoth(t, md, text, translate.Fidelity(n&1))
		}
	}
}

// TestGoodValuesAreTyped makes sure that what the schemas describe does not end
// up in json_extra.
func TestGoodValuesAreTyped(t *testing.T) {
	t.Parallel()
	md := (*cliv1.SessionEvent)(nil).ProtoReflect().Descriptor()
	g := &generator{Rand: rand.New(rand.NewPCG(2, 0))}
	kept := 0
	for range 500 {
		wire, err := table(t, md).AppendWire(nil, []byte(g.message(md, 4)), translate.Tidy)
		if err != nil {
			t.Fatal(err)
		}
		if bytes.Contains(wire, []byte{0xc2, 0x3e}) || bytes.Contains(wire, []byte{0xca, 0x3e}) {
			kept++ // the tags of json_extra and unrecognized, or an accident
		}
	}
	// Unions without a discriminator may take a value for another case.
	if kept > 25 {
		t.Errorf("%d of 500 valid events are not fully typed", kept)
	}
}
