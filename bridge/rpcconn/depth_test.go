package rpcconn

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
)

func nestedArray(levels int) string {
	return strings.Repeat("[", levels) + `"]]["` + strings.Repeat("]", levels)
}

// The connection does not send messages that are nested too deeply for the peer: a call fails, and an error
// replaces an answer.
func TestMaxDepth(t *testing.T) {
	t.Parallel()
	levels := 4
	c, p := start(t, Options{MaxDepth: 5, Request: func(context.Context, *Request) (json.RawMessage, error) {
		return json.RawMessage(nestedArray(levels)), nil
	}})
	done := call(t.Context(), c, "m", nestedArray(4))
	id, _ := p.receiveCall()
	p.answer(id, nestedArray(50))
	if got := <-done; got.err != nil {
		t.Errorf("four levels: %v", got.err)
	}
	_, err := c.Call(t.Context(), "m", []byte(nestedArray(5)))
	if !errors.Is(err, ErrTooDeep) || !errors.Is(err, ErrNotSent) {
		t.Errorf("five levels: %v", err)
	}
	if err := c.Notify(t.Context(), "m", []byte(nestedArray(5))); !errors.Is(err, ErrTooDeep) {
		t.Errorf("five levels in a notification: %v", err)
	}
	p.send(`{"jsonrpc":"2.0","id":1,"method":"ask"}`)
	if got := p.receive(); !strings.Contains(got, `"result":`+nestedArray(4)) {
		t.Errorf("an answer of four levels: %s", got)
	}
	levels = 5
	p.send(`{"jsonrpc":"2.0","id":2,"method":"ask"}`)
	if got := p.receive(); !strings.Contains(got, `"error"`) || !strings.Contains(got, ErrTooDeep.Error()) {
		t.Errorf("an answer of five levels: %s", got)
	}
}
