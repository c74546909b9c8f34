package fakecli

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net/textproto"
	"strconv"
	"strings"
	"sync"
	"time"
)

// conn is one connection to the fake.
type conn struct {
	cli  *CLI
	rwc  io.ReadWriteCloser
	tcp  bool
	out  *backlog
	gone chan struct{} // it has ended
	once sync.Once

	// Guarded by CLI.mu.
	authorised bool
	nextID     int
	waiting    map[string]chan *message // requests made of the client

	deafOnce sync.Once
	deaf     chan struct{} // closed: nothing is read any more
	written  chan struct{} // the writer has ended
}

func newConn(c *CLI, rwc io.ReadWriteCloser, tcp bool) *conn {
	return &conn{
		cli: c, rwc: rwc, tcp: tcp, out: newBacklog(),
		gone: make(chan struct{}), deaf: make(chan struct{}), written: make(chan struct{}),
		waiting: map[string]chan *message{}, authorised: !tcp || c.opts.Token == "",
	}
}

// serve reads until the connection ends, and then leaves its sessions.
func (k *conn) serve() {
	var tasks sync.WaitGroup
	tasks.Go(k.write)
	k.read()
	k.leave()
	tasks.Wait()
}

func (k *conn) read() {
	in := bufio.NewReaderSize(k.rwc, 64<<10)
	for {
		body, err := readFrame(in)
		select {
		case <-k.deaf:
			<-k.gone
			return
		default:
		}
		switch {
		case err == nil:
			k.receive(body)
		case isEnd(err):
			return
		case k.tcp:
			k.push(obj("jsonrpc", "2.0", "id", nil, "error", rpcError{Code: -32700, Message: err.Error()}))
			return
		default: // on stdio the real one goes on living, deaf
			<-k.gone
			return
		}
	}
}

// isEnd tells the end of a stream from bytes that are no frame.
func isEnd(err error) bool {
	var header textproto.ProtocolError
	return !errors.As(err, &header) && !errors.Is(err, errFrame)
}

func (k *conn) write() {
	defer close(k.written)
	for {
		f, ok := k.out.pop()
		if !ok {
			return
		}
		if _, err := k.rwc.Write(f); err != nil {
			k.drop()
			return
		}
	}
}

// drop breaks the connection.
func (k *conn) drop() {
	k.once.Do(func() {
		close(k.gone)
		k.out.close(true)
		_ = k.rwc.Close()
	})
}

// flush writes what is waiting and ends the connection, within a bound.
func (k *conn) flush() {
	k.out.close(false)
	timer := time.NewTimer(time.Second)
	defer timer.Stop()
	select {
	case <-k.written:
	case <-k.gone:
	case <-timer.C:
	}
	k.drop()
}

// leave takes the connection out of its sessions; those it was the last of end.
func (k *conn) leave() {
	c := k.cli
	c.mu.Lock()
	delete(c.conns, k)
	if !c.dead && !c.stopping {
		for _, s := range c.sessions {
			s.leave(k)
		}
	}
	c.mu.Unlock()
	k.flush()
}

func (k *conn) push(body []byte) { k.out.push(frame(body)) }

// receive handles one message.
func (k *conn) receive(body []byte) {
	trimmed := bytes.TrimSpace(body)
	if len(trimmed) > 0 && trimmed[0] == '[' {
		k.push(obj("jsonrpc", "2.0", "id", nil, "error", rpcError{Code: -32600, Message: "Invalid request"}))
		return
	}
	var m message
	if err := json.Unmarshal(trimmed, &m); err != nil {
		k.push(obj("jsonrpc", "2.0", "id", nil, "error",
			rpcError{Code: -32700, Message: "Parse error: " + err.Error()}))
		return
	}
	k.cli.oracle.add(Entry{Kind: EntryReceived, Type: m.Method, ID: string(m.ID), Body: body})
	switch {
	case m.Method == "":
		k.answered(&m)
	case m.ID == nil: // a notification means nothing to the real one
	case string(m.ID) == "null":
		k.push(obj("jsonrpc", "2.0", "id", nil, "error", rpcError{Code: -32600, Message: "Invalid request"}))
	default:
		k.request(&m)
	}
}

func (k *conn) answered(m *message) {
	k.cli.mu.Lock()
	defer k.cli.mu.Unlock()
	if answer := k.waiting[string(m.ID)]; answer != nil {
		delete(k.waiting, string(m.ID))
		answer <- m
	}
}

// ask makes a request of the client. The lock is held. Numbers as ids, like
// the real one.
func (k *conn) ask(session, method string, params []byte) <-chan *message {
	k.nextID++
	id := strconv.Itoa(k.nextID)
	answer := make(chan *message, 1)
	k.waiting[id] = answer
	k.cli.oracle.add(Entry{Kind: EntryRequest, Session: session, Type: method, ID: id, Body: params})
	b := append([]byte(`{"jsonrpc":"2.0","id":`), id...)
	b = append(b, `,"method":"`...)
	b = append(b, method...)
	b = append(b, `","params":`...)
	b = append(b, params...)
	k.push(append(b, '}'))
	return answer
}

// request answers a request, or misbehaves.
func (k *conn) request(m *message) {
	c := k.cli
	c.mu.Lock()
	fault := c.fault(m.Method)
	c.mu.Unlock()
	if fault == nil {
		k.respond(m)
		return
	}
	switch fault.Kind {
	case FaultHang:
		k.note(fault, m.Method)
	case FaultError:
		k.note(fault, m.Method)
		k.reply(m, nil, &rpcError{Code: fault.Code, Message: fault.Message, Data: fault.Data})
	case FaultDelay:
		k.note(fault, m.Method)
		c.tasks.Go(func() {
			if k.sleep(time.Duration(fault.DelayMS) * time.Millisecond) {
				k.respond(m)
			}
		})
	case FaultDuplicateReply:
		k.note(fault, m.Method)
		k.respond(m)
		k.reply(m, json.RawMessage(`{"duplicate":true}`), nil)
	case FaultUnknownReply:
		k.note(fault, m.Method)
		k.reply(&message{ID: json.RawMessage(`987654321`)}, json.RawMessage(`{}`), nil)
		k.respond(m)
	default:
		k.misbehave(*fault, m.Method)
	}
}

// sleep reports false if the connection ended first.
func (k *conn) sleep(d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-k.gone:
		return false
	}
}

func (k *conn) note(f *Fault, method string) {
	k.cli.oracle.add(Entry{Kind: EntryFault, Type: f.Kind, ID: method})
}

// misbehave does what needs no request.
func (k *conn) misbehave(f Fault, method string) {
	k.note(&f, method)
	switch f.Kind {
	case FaultGarbage:
		k.out.push([]byte("panic: not a frame at all\r\n\r\n{]"))
	case FaultBadJSON:
		k.push([]byte(`{"jsonrpc":"2.0","method":"session.event","params":{"sessionId`))
	case FaultHugeHeader:
		k.out.push([]byte("Content-Length: " + strconv.FormatInt(f.Bytes, 10) + "\r\n\r\n{"))
	case FaultHugeFrame:
		const around = len(`{"jsonrpc":"2.0","method":"session.event","params":{"sessionId":"","event":{"type":"fake.huge","data":{"pad":""}}}}`)
		pad := strings.Repeat("x", max(0, int(f.Bytes)-around))
		k.push([]byte(`{"jsonrpc":"2.0","method":"session.event","params":{"sessionId":"","event":{"type":"fake.huge","data":{"pad":"` + pad + `"}}}}`))
	case FaultHalfFrame:
		k.out.push([]byte("Content-Length: 1000\r\n\r\n{\"jsonrpc\":"))
		k.flush()
	case FaultClose:
		k.flush()
	case FaultExit:
		k.cli.exit(f.ExitCode)
	case FaultStopReading:
		k.deafOnce.Do(func() { close(k.deaf) })
	}
}

// respond runs a method and replies.
func (k *conn) respond(m *message) {
	c := k.cli
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.dead {
		return
	}
	call := &call{conn: k, cli: c, method: m.Method, params: m.Params}
	result, err := call.run()
	k.replyLocked(m, result, err)
	for _, f := range call.after {
		f()
	}
}

func (k *conn) reply(m *message, result json.RawMessage, err *rpcError) {
	k.cli.mu.Lock()
	defer k.cli.mu.Unlock()
	k.replyLocked(m, result, err)
}

func (k *conn) replyLocked(m *message, result json.RawMessage, err *rpcError) {
	entry := Entry{Kind: EntryReply, Type: m.Method, ID: string(m.ID)}
	if len(result) <= shortResult {
		entry.Body = result
	}
	k.cli.oracle.add(entry)
	if err != nil {
		k.push(obj("jsonrpc", "2.0", "id", m.ID, "error", err))
		return
	}
	if result == nil {
		result = json.RawMessage("null")
	}
	k.push(obj("jsonrpc", "2.0", "id", m.ID, "result", result))
}
