package bench

import (
	"io"
	"log/slog"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	cliv1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/cli/v1"

	"github.com/copilot-grpc/copilot-grpc/bridge/translate"
	"github.com/copilot-grpc/copilot-grpc/bridge/wire"
)

// largeFrame is an event of 20 KB of Markdown, as the CLI frames it.
func largeFrame() []byte {
	text := strings.Repeat(`- it reads the header first, so that \"the size\" is known\n\n`+
		`if err != nil {\n\treturn fmt.Errorf(\"parse: %w\", err)\n}\n`, 160)
	return []byte(`{"jsonrpc":"2.0","method":"session.event","params":{"sessionId":"s1","event":{` +
		`"type":"assistant.message","data":{"messageId":"m","content":"` + text + `"},"id":"7d0f1f9a-3b0c-4a55-9d57-3f6f2f3c9a11",` +
		`"timestamp":"2026-01-02T03:04:05.678Z","parentId":null}}}`)
}

// A large event is read from the CLI's pipe, written to the journal's file and written to a socket. The kernel's three
// copies are a part of its cost that no server can save. This is what remains of a server on one thread without
// JSON-RPC, gRPC, copies in memory and waiting; docs/performance.md compares it with the bridge.
func TestFloorOfALargeEvent(t *testing.T) {
	table, err := wire.New(slog.New(slog.DiscardHandler)).Table((*cliv1.SessionEvent)(nil).ProtoReflect().Descriptor())
	if err != nil {
		t.Fatal(err)
	}
	const events, fileBytes = 400, 4 << 20
	frame := largeFrame()
	var out []byte
	translated := func(body []byte) []byte {
		f, err := translate.ScanFrame(body)
		if err == nil {
			out, err = table.AppendWire(out[:0], f.Event.Raw, translate.Tidy)
		}
		if err != nil {
			t.Fatal(err)
		}
		return f.Event.Raw
	}
	in, cli, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	ends, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	socket, client := os.NewFile(uintptr(ends[0]), "server"), os.NewFile(uintptr(ends[1]), "client")
	journal, err := os.CreateTemp(t.TempDir(), "")
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		for _, f := range []*os.File{in, cli, socket, client, journal} {
			_ = f.Close()
		}
	}()
	go func() { _, _ = io.Copy(io.Discard, client) }() // ends with the socket
	body := make([]byte, len(frame))
	at := int64(0)
	got := best(t, 20,
		func() {
			for range events {
				translated(frame)
			}
		},
		func() {
			go func() {
				for range events {
					if _, err := cli.Write(frame); err != nil {
						return
					}
				}
			}()
			for range events {
				if _, err := io.ReadFull(in, body); err != nil {
					t.Fatal(err)
				}
				raw := translated(body)
				n, err := journal.WriteAt(raw, at)
				if err == nil {
					_, err = socket.Write(out)
				}
				if err != nil {
					t.Fatal(err)
				}
				if at += int64(n); at > fileBytes {
					at = 0
				}
			}
		},
	)
	ratio := got[1] / got[0]
	if ratio < 1.2 {
		t.Errorf("the kernel's copies of %d bytes cost %.2f of the scan and the translation", len(frame), ratio-1)
	}
	t.Logf("with nothing but the kernel's copies an event of %d bytes costs %.1f µs, %.2f times its scan and translation",
		len(frame), got[1]/events/1000, ratio)
}
