package h2

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"sync"
	"testing"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// pieces is a connection that gives and takes bytes in pieces of random sizes.
type pieces struct {
	net.Conn
	in  []byte
	rng *rand.Rand

	mu  sync.Mutex
	out bytes.Buffer
}

func (p *pieces) Read(b []byte) (int, error) {
	if len(p.in) == 0 {
		return 0, io.EOF
	}
	n := copy(b, p.in[:min(len(p.in), 1+p.rng.IntN(40))])
	p.in = p.in[n:]
	return n, nil
}

func (p *pieces) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.out.Write(b)
}

func (*pieces) Close() error { return nil }

// ledger is a Budget.
type ledger struct{ used, most int }

var errFull = errors.New("full")

func (l *ledger) Take(n int) error {
	if l.used += n; l.most > 0 && l.used > l.most {
		return errFull
	}
	return nil
}

func (l *ledger) Change(n int) { l.used += n }

func refusal(err error) []hpack.HeaderField {
	return []hpack.HeaderField{{Name: ":status", Value: "200"}, {Name: "grpc-status", Value: "8"},
		{Name: "grpc-message", Value: err.Error()}}
}

// client writes what a client does.
type client struct {
	bytes.Buffer
	*http2.Framer
}

func newClient() *client {
	c := &client{}
	c.WriteString(http2.ClientPreface)
	c.Framer = http2.NewFramer(&c.Buffer, nil)
	_ = c.WriteSettings()
	return c
}

func (c *client) head(stream uint32, flags bool) {
	b := block([]hpack.HeaderField{{Name: ":method", Value: "POST"}, {Name: "x", Value: "some text"}})
	_ = c.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, BlockFragment: b[:len(b)/2], EndStream: flags})
	_ = c.WriteContinuation(stream, true, b[len(b)/2:])
}

// message is one of gRPC's.
func message(flag byte, payload []byte) []byte {
	n := len(payload)
	return append([]byte{flag, byte(n >> 24), byte(n >> 16), byte(n >> 8), byte(n)}, payload...)
}

// The connection returns the received bytes in pieces of any size. The counted bytes do not depend on the
// pieces: each stream counts the bytes of its messages, without padding.
func TestReadCounts(t *testing.T) {
	t.Parallel()
	for seed := range uint64(200) {
		rng := rand.New(rand.NewPCG(seed, 1))
		c := newClient()
		c.head(1, false)
		whole := message(0, make([]byte, 100))
		_ = c.WriteData(1, false, whole[:50])
		c.head(3, false)
		_ = c.WriteDataPadded(3, false, message(0, make([]byte, 30))[:20], make([]byte, 7))
		_ = c.WritePing(false, [8]byte{})
		_ = c.WriteDataPadded(1, false, whole[50:], make([]byte, 200))
		c.head(5, false)
		_ = c.WriteData(5, false, message(1, append(make([]byte, 50), 0x10, 0x27, 0, 0))) // 10,000 when unpacked
		c.head(7, false)
		_ = c.WriteData(7, false, make([]byte, 1000))
		_ = c.WriteRSTStream(7, http2.ErrCodeCancel)
		_ = c.WriteData(7, false, make([]byte, 1000)) // of a stream that has ended
		sent := bytes.Clone(c.Bytes())
		l := &ledger{}
		conn := Wrap(&pieces{in: c.Bytes(), rng: rng}, Config{Budget: l, MaxMessage: 1 << 20})
		var got []byte
		for buf := make([]byte, 300); ; {
			n, err := conn.Read(buf[:1+rng.IntN(300)])
			got = append(got, buf[:n]...)
			if err != nil {
				break
			}
		}
		want := (105 + messageOverhead) + 20 + (59 + 10_000 + messageOverhead)
		if !bytes.Equal(got, sent) || l.used != want {
			t.Fatalf("seed %d: it has counted %d, want %d; the bytes are the same: %t", seed, l.used, want,
				bytes.Equal(got, sent))
		}
		one, five := conn.streams[1], conn.streams[5]
		if err := errors.Join(one.Taken(false), five.Taken(false)); err != nil || l.used != want {
			t.Fatalf("what is taken is held: %d, %v", l.used, err)
		}
		if err := one.Open(100, conn.config.Budget); err != nil || l.used != want+100+streamOverhead {
			t.Fatalf("with a stream's headers %d are held, %v", l.used, err)
		}
		one.Done()
		_ = conn.Close()
		if l.used != 59+10_000+messageOverhead {
			t.Fatalf("after the end %d are held, want what a handler has", l.used)
		}
		if five.Done(); l.used != 0 {
			t.Fatalf("%d are never given back", l.used)
		}
	}
}

// While the headers of a stream are read, it is the latest.
func TestLatest(t *testing.T) {
	t.Parallel()
	c := newClient()
	for i := range uint32(20) {
		c.head(2*i+1, false)
		_ = c.WriteData(2*i+1, true, message(0, make([]byte, 10)))
	}
	conn := Wrap(&pieces{in: c.Bytes(), rng: rand.New(rand.NewPCG(1, 1))}, Config{Budget: &ledger{}})
	if _, err := io.ReadFull(conn, make([]byte, len(http2.ClientPreface))); err != nil {
		t.Fatal(err)
	}
	f := http2.NewFramer(nil, conn)
	f.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	for seen := uint32(0); seen < 20; {
		frame, err := f.ReadFrame()
		if err != nil {
			t.Fatal(err)
		}
		if h, ok := frame.(*http2.MetaHeadersFrame); ok {
			if got := conn.Latest().id; got != h.StreamID {
				t.Fatalf("at the headers of stream %d the latest is %d", h.StreamID, got)
			}
			seen++
		}
	}
}

// A stream that costs too much ends on both sides, at frames' bounds, and is not served.
func TestRefusal(t *testing.T) {
	t.Parallel()
	for seed := range uint64(100) {
		c := newClient()
		c.head(1, false)
		_ = c.WriteData(1, false, message(0, make([]byte, 100)))
		c.head(3, false)
		_ = c.WriteData(3, true, message(0, make([]byte, 100)))
		_ = c.WritePing(false, [8]byte{9})
		p := &pieces{in: c.Bytes(), rng: rand.New(rand.NewPCG(seed, 1))}
		conn := Wrap(p, Config{Budget: &ledger{most: 200}, Refusal: refusal, MaxMessage: 1 << 20})
		var settings bytes.Buffer
		_ = http2.NewFramer(&settings, nil).WriteSettings()
		if _, err := conn.Write(settings.Bytes()); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(conn, make([]byte, len(http2.ClientPreface))); err != nil {
			t.Fatal(err)
		}
		f := http2.NewFramer(nil, conn)
		f.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
		reset, pinged := false, false
		var three *Stream
		for !pinged {
			frame, err := f.ReadFrame()
			if err != nil {
				t.Fatalf("seed %d: %v", seed, err)
			}
			switch frame := frame.(type) {
			case *http2.MetaHeadersFrame:
				three = conn.Latest()
			case *http2.RSTStreamFrame:
				reset = reset || frame.StreamID == 3
			case *http2.PingFrame:
				pinged = true
			}
		}
		if !reset || !errors.Is(three.Taken(false), errFull) {
			t.Fatalf("seed %d: reset %t, and a handler may take the message", seed, reset)
		}
		out := http2.NewFramer(nil, &p.out)
		out.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
		_, _ = out.ReadFrame()
		if told, err := out.ReadFrame(); err != nil || told.Header().StreamID != 3 ||
			told.(*http2.MetaHeadersFrame).Fields[2].Value != "full" {
			t.Fatalf("seed %d: the caller gets %v, %v", seed, told, err)
		}
	}
}

// GOAWAY comes between frames, wherever writing stops, and never within a block of headers.
func TestGoAwayBetweenFrames(t *testing.T) {
	t.Parallel()
	for seed := range uint64(200) {
		rng := rand.New(rand.NewPCG(seed, 1))
		var all bytes.Buffer
		f := http2.NewFramer(&all, nil)
		_ = f.WriteSettings()
		b := block([]hpack.HeaderField{{Name: ":status", Value: "200"}, {Name: "x", Value: "some text"}})
		for i := range uint32(10) {
			_ = f.WriteHeaders(http2.HeadersFrameParam{StreamID: 2*i + 1, BlockFragment: b[:5]})
			_ = f.WriteContinuation(2*i+1, true, b[5:])
			_ = f.WriteData(2*i+1, i%2 == 0, make([]byte, rng.IntN(100)))
		}
		p := &pieces{}
		conn := Wrap(p, Config{Budget: &ledger{}})
		rest := all.Bytes()
		for said := false; len(rest) > 0; {
			n := 1 + rng.IntN(len(rest))
			if _, err := conn.Write(rest[:n]); err != nil {
				t.Fatal(err)
			}
			if rest = rest[n:]; !said {
				conn.GoAway(http2.ErrCodeNo, "why")
				said = true
			}
		}
		in := http2.NewFramer(nil, &p.out)
		in.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
		frames, away := 0, 0
		for {
			frame, err := in.ReadFrame()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatalf("seed %d: %v", seed, err)
			}
			if g, ok := frame.(*http2.GoAwayFrame); ok && string(g.DebugData()) == "why" {
				away++
			} else {
				frames++
			}
		}
		if frames != 21 || away != 1 {
			t.Fatalf("seed %d: %d frames and %d GOAWAYs", seed, frames, away)
		}
	}
}
