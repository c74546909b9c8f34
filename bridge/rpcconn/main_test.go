package rpcconn

import (
	"encoding/json"
	"net"
	"strconv"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// peer is the other end of a connection under test, driven frame by frame.
// Its pipe has no buffer: what it does not read is not written.
type peer struct {
	tb     testing.TB
	conn   net.Conn
	frames *frameReader
}

// start returns a connection and its peer; both are gone when the test ends.
func start(tb testing.TB, o Options) (*Conn, *peer) {
	tb.Helper()
	mine, theirs := net.Pipe()
	c := New(mine, o)
	p := &peer{tb: tb, conn: theirs, frames: newFrameReader(theirs, DefaultMaxFrame)}
	tb.Cleanup(func() {
		_ = c.Close()
		_ = theirs.Close()
		c.Wait()
	})
	return c, p
}

// send writes one frame.
func (p *peer) send(body string) {
	p.tb.Helper()
	if _, err := p.conn.Write(framed(body)); err != nil {
		p.tb.Fatalf("peer writes %q: %v", body, err)
	}
}

// receive reads one frame.
func (p *peer) receive() string {
	p.tb.Helper()
	body, err := p.frames.next()
	if err != nil {
		p.tb.Fatalf("peer reads: %v", err)
	}
	return string(body)
}

// receiveCall reads one frame and returns its id.
func (p *peer) receiveCall() (id int, body string) {
	p.tb.Helper()
	body = p.receive()
	var m struct{ ID int }
	if err := json.Unmarshal([]byte(body), &m); err != nil || m.ID == 0 {
		p.tb.Fatalf("peer read %q: no call (%v)", body, err)
	}
	return m.ID, body
}

// answer replies to a call with a result.
func (p *peer) answer(id int, result string) {
	p.tb.Helper()
	p.send(`{"jsonrpc":"2.0","id":` + strconv.Itoa(id) + `,"result":` + result + `}`)
}

func framed(body string) []byte {
	return []byte("Content-Length: " + strconv.Itoa(len(body)) + "\r\n\r\n" + body)
}

// event is a session.event as the CLI writes it.
func event(n int) string {
	return `{"jsonrpc":"2.0","method":"session.event","params":{"sessionId":"s","event":{"type":"t","n":` +
		strconv.Itoa(n) + `}}}`
}
