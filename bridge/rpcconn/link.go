package rpcconn

import (
	"encoding/json"
	"strconv"

	"github.com/sourcegraph/jsonrpc2"
)

// frameField is how a finished frame travels through the library: as an extra
// field of the request, which the library carries but does not marshal.
const frameField = "frame"

// link is the ObjectStream the library works on. It keeps the library to what
// it is good at (ids, pending calls, the order of sends) and away from the
// bytes: what the library writes is replaced by the frame built beforehand,
// and what it reads is an envelope with an id.
type link struct {
	out *outbound

	// sending is the frame of the send in progress. The library serialises
	// its sends, hooks included, so this needs no lock of its own.
	sending *outgoing

	// settled has the ids of calls that are over: answered, or given up. It
	// has room for every call in flight, and the library always takes from it.
	settled chan uint64
	over    <-chan struct{}
	cause   func() error
	closeFn func()
}

var _ jsonrpc2.ObjectStream = (*link)(nil)

// onSend runs in the library right before WriteObject and under the same lock.
func (l *link) onSend(req *jsonrpc2.Request, resp *jsonrpc2.Response) {
	if req != nil {
		l.sending = req.ExtraFields[0].Value.(*outgoing)
		return
	}
	l.sending = &outgoing{frame: *resp.Result, priority: true}
}

// WriteObject queues the frame that onSend found. It never blocks.
func (l *link) WriteObject(any) error {
	out := l.sending
	l.sending = nil
	return l.out.push(out)
}

// ReadObject gives the library the end of a call. The reply itself is already
// with the call, so this envelope is only what removes the pending entry and
// wakes the caller.
func (l *link) ReadObject(v any) error {
	select {
	case id := <-l.settled:
		return envelope(v, id)
	default:
	}
	select {
	case id := <-l.settled:
		return envelope(v, id)
	case <-l.over:
		return l.cause()
	}
}

func envelope(v any, id uint64) error {
	var scratch [48]byte
	b := append(scratch[:0], `{"id":`...)
	b = strconv.AppendUint(b, id, 10)
	b = append(b, `,"result":true}`...)
	return v.(json.Unmarshaler).UnmarshalJSON(b)
}

// settle tells the library that a call is over.
func (l *link) settle(id uint64) {
	select {
	case l.settled <- id:
	case <-l.over:
	}
}

// Close is called by the library when it is done.
func (l *link) Close() error {
	l.closeFn()
	return nil
}
