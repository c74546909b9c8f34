//go:build unix

package app

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"google.golang.org/protobuf/proto"

	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
	"github.com/copilot-grpc/copilot-grpc/internal/testing/fakecli"
	"github.com/copilot-grpc/copilot-grpc/internal/testing/race"
)

const (
	// idleEnv is set in the process that measures idle subscribers.
	idleEnv = "COPILOT_GRPC_TEST_IDLE"
	// idleSubscribers are as many as a connection may have streams, without some that are opened before.
	idleSubscribers, idleBefore = 850, 100
	// idleBytes is the limit of a subscriber with a separate stream. The measured figure is about 12,900 bytes: a
	// stack of 8 KB and 4.7 KB of objects.
	idleBytes = 16 << 10
)

// wireClient opens streams without a client's memory for them.
type wireClient struct {
	*http2.Framer
	head   *hpack.Encoder
	buffer bytes.Buffer
	stream uint32 // the next one
}

func dialWire(t *testing.T, socket string) *wireClient {
	t.Helper()
	var d net.Dialer
	conn, err := d.DialContext(t.Context(), "unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	w := &wireClient{Framer: http2.NewFramer(conn, conn), stream: 1}
	w.head = hpack.NewEncoder(&w.buffer)
	if _, err = io.WriteString(conn, http2.ClientPreface); err == nil {
		err = w.WriteSettings()
	}
	if err == nil {
		err = w.WriteWindowUpdate(0, 1<<28)
	}
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// subscribe opens a stream and waits for its first two frames.
func (w *wireClient) subscribe(t *testing.T, r *bridgev1.SubscribeRequest) {
	t.Helper()
	defer func() { w.stream += 2 }()
	w.buffer.Reset()
	for _, f := range [][2]string{
		{":method", "POST"}, {":scheme", "http"}, {":path", bridgev1.EventService_Subscribe_FullMethodName},
		{":authority", "localhost"}, {"content-type", "application/grpc"}, {"te", "trailers"},
	} {
		_ = w.head.WriteField(hpack.HeaderField{Name: f[0], Value: f[1]})
	}
	message, err := proto.Marshal(r)
	if err == nil {
		err = w.WriteHeaders(http2.HeadersFrameParam{StreamID: w.stream, BlockFragment: w.buffer.Bytes(),
			EndHeaders: true})
	}
	if err == nil {
		head := binary.BigEndian.AppendUint32([]byte{0}, uint32(len(message))) //nolint:gosec // it is small
		err = w.WriteData(w.stream, true, append(head, message...))
	}
	for frames := 2; frames > 0 && err == nil; {
		var f http2.Frame
		f, err = w.ReadFrame()
		switch f := f.(type) {
		case *http2.DataFrame:
			frames--
		case *http2.SettingsFrame:
			if !f.IsAck() {
				err = w.WriteSettingsAck()
			}
		case *http2.PingFrame:
			if !f.IsAck() {
				err = w.WritePing(true, f.Data)
			}
		case *http2.RSTStreamFrame, *http2.GoAwayFrame:
			err = fmt.Errorf("got %v", f)
		}
	}
	if err != nil {
		t.Fatal(err)
	}
}

// TestIdleServer is the measurement of TestIdleSubscriber, in a process with nothing else in it.
func TestIdleServer(t *testing.T) { //nolint:paralleltest // a separate process
	if os.Getenv(idleEnv) == "" {
		t.Skip("it is the server of TestIdleSubscriber")
	}
	r := start(t, Config{AdminListen: "unix:" + filepath.Join(shortDir(t), "a")}, WithRunner(fake(t, fakecli.Script{})))
	ctx, c := r.dial(t)
	created, err := c.Sessions().CreateSession(ctx, &bridgev1.CreateSessionRequest{})
	if err != nil {
		t.Fatal(err)
	}
	request := &bridgev1.SubscribeRequest{Sessions: []*bridgev1.SessionCursor{{
		SessionId: created.GetSession().GetSessionId(), Start: bridgev1.StreamStart_STREAM_START_END}}}
	w := dialWire(t, strings.TrimPrefix(r.Target(), "unix:"))
	taken := func() uint64 {
		for range 4 { // each collection halves a stack once
			runtime.GC()
		}
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc + m.StackInuse
	}
	for range idleBefore {
		w.subscribe(t, request)
	}
	before := taken()
	for range idleSubscribers {
		w.subscribe(t, request)
	}
	fmt.Printf("\nidle %d\n", (taken()-before)/idleSubscribers)
}

// The memory of an idle subscriber with a separate stream has a limit.
func TestIdleSubscriber(t *testing.T) {
	t.Parallel()
	if race.Enabled {
		t.Skip("the race detector adds memory")
	}
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestIdleServer$")
	cmd.Env = append(os.Environ(), idleEnv+"=1")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for lines := bufio.NewScanner(bytes.NewReader(out)); lines.Scan(); {
		if text, ok := strings.CutPrefix(lines.Text(), "idle "); ok {
			if n, err := strconv.Atoi(text); err != nil || n > idleBytes {
				t.Errorf("an idle subscriber takes %s bytes, and at most %d are planned", text, idleBytes)
			}
			t.Logf("%s bytes", text)
			return
		}
	}
	t.Errorf("no figure: %s", out)
}
