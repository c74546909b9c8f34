// Package loadcli is a CLI that does nothing but what is measured: it answers the calls
// that open a session, sends ready-made events as fast as they are read, and times tool
// calls where the CLI waits for them. Its own work is so small that what is measured is
// what it talks to.
package loadcli

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Version is what it says it is.
const Version = "1.0.102"

// The prompts that it understands; any other is answered with an empty turn.
const (
	// PromptBlast is followed by a payload's name and a count.
	PromptBlast = "blast"
	// PromptSpread is PromptBlast to all sessions of the process, by turns; each of them gets the end. The count is the
	// total.
	PromptSpread = "spread"
	// PromptTools is followed by a count of tool calls, one after the other.
	PromptTools = "tools"
)

// Tool is the tool that it calls, and Done begins the message of the session.info
// event with which a blast or a series of tool calls ends. After a series of tool calls
// the nanoseconds that each took follow, separated by commas.
const (
	Tool = "bench_tool"
	Done = "bench done "
)

const answerMethod = "session.tools.handlePendingToolCall"

// peer is the connection.
type peer struct {
	in    *bufio.Reader
	out   io.Writer
	body  []byte
	frame []byte
	ids   uint64
	// sessions are the open sessions.
	sessions []string
}

// request is what it reads of a message.
type request struct {
	ID     json.RawMessage `json:"id"`
	Method string          `json:"method"`
	Params struct {
		SessionID string `json:"sessionId"`
		Prompt    string `json:"prompt"`
	} `json:"params"`
}

// Serve answers until in ends.
func Serve(in io.Reader, out io.Writer) error {
	p := &peer{in: bufio.NewReaderSize(in, 64<<10), out: out}
	for {
		r, err := p.read()
		if err == io.EOF {
			return nil
		}
		if err == nil {
			err = p.handle(r)
		}
		if err != nil {
			return err
		}
	}
}

// read returns the next request; replies to us do not come, since we ask nothing.
func (p *peer) read() (request, error) {
	var r request
	length := 0
	for {
		line, err := p.in.ReadSlice('\n')
		if err != nil {
			return r, err
		}
		text := strings.TrimRight(string(line), "\r\n")
		if text == "" {
			break
		}
		if value, ok := strings.CutPrefix(text, "Content-Length: "); ok {
			if length, err = strconv.Atoi(value); err != nil {
				return r, err
			}
		}
	}
	if cap(p.body) < length {
		p.body = make([]byte, length)
	}
	p.body = p.body[:length]
	if _, err := io.ReadFull(p.in, p.body); err != nil {
		return r, err
	}
	return r, json.Unmarshal(p.body, &r)
}

func (p *peer) handle(r request) error {
	switch r.Method {
	case "connect", "ping":
		return p.reply(r, `{"ok":true,"message":"","timestamp":0,"protocolVersion":3,"version":"`+Version+`"}`)
	case "session.create", "session.resume":
		if !slices.Contains(p.sessions, r.Params.SessionID) {
			p.sessions = append(p.sessions, r.Params.SessionID)
		}
		return p.reply(r, `{"sessionId":`+quote(r.Params.SessionID)+`,"workspacePath":"","capabilities":{}}`)
	case answerMethod:
		return p.reply(r, `{"success":true}`)
	case "session.destroy", "session.delete":
		p.sessions = slices.DeleteFunc(p.sessions, func(id string) bool { return id == r.Params.SessionID })
	case "session.send":
		return p.send(r)
	}
	return p.reply(r, `{"success":true}`)
}

func (p *peer) reply(r request, result string) error {
	if r.ID == nil {
		return nil
	}
	p.begin()
	p.add(`{"jsonrpc":"2.0","id":` + string(r.ID) + `,"result":` + result + `}`)
	return p.flush()
}

// send answers a prompt. The reply and the first event leave in one write, as the real
// CLI's usually do.
func (p *peer) send(r request) error {
	message := p.id()
	p.begin()
	p.add(`{"jsonrpc":"2.0","id":` + string(r.ID) + `,"result":{"messageId":"` + message + `"}}`)
	p.event(r.Params.SessionID, "user.message", `{"content":"","messageId":"`+message+`"}`, false)
	if err := p.flush(); err != nil {
		return err
	}
	words := strings.Fields(r.Params.Prompt)
	done, told := "", []string{r.Params.SessionID}
	var err error
	switch {
	case len(words) == 3 && words[0] == PromptBlast:
		err = p.blast(told, words[1], words[2])
		done = Done
	case len(words) == 3 && words[0] == PromptSpread:
		told = p.sessions
		err = p.blast(told, words[1], words[2])
		done = Done
	case len(words) == 2 && words[0] == PromptTools:
		done, err = p.tools(r.Params.SessionID, words[1])
	}
	if err != nil {
		return err
	}
	for _, session := range told {
		p.begin()
		if done != "" {
			p.event(session, "session.info", `{"infoType":"bench","message":`+quote(done)+`}`, false)
		}
		p.event(session, "session.idle", `{}`, true)
		if err := p.flush(); err != nil {
			return err
		}
	}
	return nil
}

// blast sends the same event many times, to the sessions by turns, each with a new id and in a separate write.
func (p *peer) blast(sessions []string, payload, count string) error {
	n, err := strconv.Atoi(count)
	if err != nil {
		return err
	}
	of, err := Find(payload)
	if err != nil {
		return err
	}
	frames, places := make([][]byte, len(sessions)), make([]int, len(sessions))
	for i, session := range sessions {
		body, at := of.eventBody(session)
		frames[i] = fmt.Appendf(nil, "Content-Length: %d\r\n\r\n", len(body))
		places[i] = at + len(frames[i])
		frames[i] = append(frames[i], body...)
	}
	for i := range n {
		frame, at := frames[i%len(frames)], places[i%len(frames)]
		p.ids++
		putHex(frame[at:at+12], p.ids)
		if _, err := p.out.Write(frame); err != nil {
			return err
		}
	}
	return nil
}

// tools calls the tool and waits for the answer, again and again.
func (p *peer) tools(session, count string) (string, error) {
	n, err := strconv.Atoi(count)
	if err != nil {
		return "", err
	}
	took := make([]string, 0, n)
	for range n {
		id := p.id()
		p.begin()
		p.event(session, "external_tool.requested", `{"requestId":"`+id+`","sessionId":`+quote(session)+
			`,"toolCallId":"call_`+id+`","toolName":"`+Tool+`","arguments":{"city":"Paris"},"workingDirectory":"/"}`,
			false)
		begin := time.Now()
		if err := p.flush(); err != nil {
			return "", err
		}
		r, err := p.await(answerMethod)
		if err != nil {
			return "", err
		}
		took = append(took, strconv.FormatInt(time.Since(begin).Nanoseconds(), 10))
		p.begin()
		p.add(`{"jsonrpc":"2.0","id":` + string(r.ID) + `,"result":{"success":true}}`)
		p.event(session, "external_tool.completed", `{"requestId":"`+id+`"}`, false)
		if err := p.flush(); err != nil {
			return "", err
		}
	}
	return Done + strings.Join(took, ","), nil
}

// await handles requests until one of the method comes, which is left to the caller.
func (p *peer) await(method string) (request, error) {
	for {
		r, err := p.read()
		if err != nil || r.Method == method {
			return r, err
		}
		if err := p.handle(r); err != nil {
			return r, err
		}
	}
}

func (p *peer) begin() { p.frame = p.frame[:0] }

func (p *peer) add(body string) {
	p.frame = fmt.Appendf(p.frame, "Content-Length: %d\r\n\r\n%s", len(body), body)
}

func (p *peer) event(session, kind, data string, ephemeral bool) {
	p.add(wrap(session, event(kind, data, p.id(), ephemeral)))
}

func (p *peer) flush() error {
	_, err := p.out.Write(p.frame)
	return err
}

// id returns a new event id.
func (p *peer) id() string {
	p.ids++
	var digits [12]byte
	putHex(digits[:], p.ids)
	return idHead + string(digits[:])
}

// putHex writes the low digits of n.
func putHex(to []byte, n uint64) {
	for i := len(to) - 1; i >= 0; i-- {
		to[i] = "0123456789abcdef"[n&15]
		n >>= 4
	}
}

func quote(s string) string {
	b, err := json.Marshal(s)
	if err != nil {
		panic(err) // a string always marshals
	}
	return string(b)
}
