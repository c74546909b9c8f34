package fakecli

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/textproto"
	"strconv"
	"sync"
)

// maxIncoming is the largest frame read; the oldest supported CLI's own limit.
const maxIncoming = 512 << 20

var errFrame = errors.New("bad frame header")

// readFrame reads one frame. Deliberately another implementation than the one
// it is used to test.
func readFrame(r *bufio.Reader) ([]byte, error) {
	header, err := textproto.NewReader(r).ReadMIMEHeader()
	if err != nil {
		return nil, err
	}
	n, err := strconv.ParseUint(header.Get("Content-Length"), 10, 63)
	if err != nil || n > maxIncoming {
		return nil, fmt.Errorf("%w: length %q", errFrame, header.Get("Content-Length"))
	}
	body := make([]byte, n)
	_, err = io.ReadFull(r, body)
	return body, err
}

// frame puts a header before a body.
func frame(body []byte) []byte {
	b := make([]byte, 0, len(body)+40)
	b = append(b, "Content-Length: "...)
	b = strconv.AppendInt(b, int64(len(body)), 10)
	b = append(b, "\r\n\r\n"...)
	return append(b, body...)
}

// obj builds an object from names and values, in order. The real CLI's order
// is part of what is faked, and maps have none.
func obj(pairs ...any) json.RawMessage {
	b := []byte{'{'}
	for i := 0; i < len(pairs); i += 2 {
		if i > 0 {
			b = append(b, ',')
		}
		b = strconv.AppendQuote(b, pairs[i].(string))
		b = append(b, ':')
		b = append(b, encode(pairs[i+1])...)
	}
	return append(b, '}')
}

// encode marshals without escaping what JSON does not require, and raw text
// not at all.
func encode(v any) []byte {
	if raw, ok := v.(json.RawMessage); ok && raw != nil {
		return raw
	}
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		panic(fmt.Sprintf("fakecli: encode %T: %v", v, err)) // a mistake in this package
	}
	return bytes.TrimRight(b.Bytes(), "\n")
}

// rpcError is the error object of a reply.
type rpcError struct {
	Code    int             `json:"code"`
	Message string          `json:"message"`
	Data    json.RawMessage `json:"data,omitempty"`
}

// message is any message received.
type message struct {
	ID     json.RawMessage `json:"id"`
	Method string          `json:"method"`
	Params json.RawMessage `json:"params"`
	Result json.RawMessage `json:"result"`
	Error  *rpcError       `json:"error"`
}

// backlog is what is waiting to be written on one connection. Like the real
// CLI's it takes everything; what keeps it bounded is that a turn pauses while
// it is over a limit.
type backlog struct {
	mu      sync.Mutex
	changed sync.Cond
	frames  [][]byte
	bytes   int
	closed  bool
}

func newBacklog() *backlog {
	b := &backlog{}
	b.changed.L = &b.mu
	return b
}

func (b *backlog) push(frame []byte) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return
	}
	b.frames = append(b.frames, frame)
	b.bytes += len(frame)
	b.changed.Broadcast()
}

// pop waits for the next frame.
func (b *backlog) pop() ([]byte, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for len(b.frames) == 0 && !b.closed {
		b.changed.Wait()
	}
	if len(b.frames) == 0 {
		return nil, false
	}
	f := b.frames[0]
	b.frames[0] = nil
	b.frames = b.frames[1:]
	b.bytes -= len(f)
	b.changed.Broadcast()
	return f, true
}

// waitBelow returns when no more than limit bytes wait, or the end.
func (b *backlog) waitBelow(limit int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for b.bytes > limit && !b.closed {
		b.changed.Wait()
	}
}

// close ends it; with drop, what is left is not written.
func (b *backlog) close(drop bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.closed = true
	if drop {
		b.frames, b.bytes = nil, 0
	}
	b.changed.Broadcast()
}
