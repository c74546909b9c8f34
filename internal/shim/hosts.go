package shim

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"sync"

	"github.com/google/uuid"

	"github.com/copilot-grpc/copilot-grpc/bridge/jsonobj"
	"github.com/copilot-grpc/copilot-grpc/bridge/rpcconn"
)

// Hosts are the AHP hosts (host.start) that programs have started in the CLI of a private bridge. A host belongs to the
// connection that started it: that connection receives the host's callbacks, and the host ends with it. The bridge has
// one connection to the CLI for all connections of the shim, so Hosts keeps them apart. It is safe for concurrent use.
//
// Hosts implements bridge.HostCallbacks.
type Hosts struct {
	mu     sync.Mutex
	owners map[string]*conn // by the host's id
}

// NewHosts returns Hosts without a host.
func NewHosts() *Hosts { return &Hosts{owners: map[string]*conn{}} }

// hostExited is the notification that a host has ended.
const hostExited = "host.exited"

// Request forwards a request of the CLI to the connection that owns the host. It waits for the answer.
func (h *Hosts) Request(ctx context.Context, method string, params []byte) (json.RawMessage, error) {
	c := h.owner(hostOf(params))
	if c == nil {
		return nil, unhandled(method)
	}
	c.server.counter.raw(method)
	return c.rpc.Call(ctx, method, params)
}

// Notification forwards a notification of the CLI to the connection that owns the host. It does not wait: a connection
// whose program has stopped reading loses the notification once its output queue is full.
func (h *Hosts) Notification(method string, params []byte) {
	id := hostOf(params)
	c := h.owner(id)
	if c == nil {
		return
	}
	if method == hostExited {
		h.release(id)
	}
	c.server.counter.raw(method)
	err := c.rpc.Notify(c.life, method, bytes.Clone(params))
	if err != nil && c.life.Err() == nil {
		c.log.Warn("sending a notification failed", slog.String("method", method), slog.Any("error", err))
	}
}

// owner returns the connection that owns a host; nil if none does.
func (h *Hosts) owner(id string) *conn {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.owners[id]
}

// claim makes c the owner of a host that has none.
func (h *Hosts) claim(id string, c *conn) (claimed bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.owners[id] != nil {
		return false
	}
	h.owners[id] = c
	return true
}

// release forgets a host.
func (h *Hosts) release(id string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.owners, id)
}

// of lists the hosts of a connection.
func (h *Hosts) of(c *conn) (ids []string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for id, owner := range h.owners {
		if owner == c {
			ids = append(ids, id)
		}
	}
	return ids
}

// hostOf returns the id of the host that parameters name; "" if they name none.
func hostOf(params []byte) string {
	var p struct {
		HostID string `json:"hostId"`
	}
	_ = json.Unmarshal(params, &p) // the CLI says what is wrong
	return p.HostID
}

// startHost is host.start. The connection owns the host before the CLI knows it, because the host's first callback may
// precede the answer.
func (c *conn) startHost(ctx context.Context, r *rpcconn.Request) (json.RawMessage, error) {
	hosts, id := c.server.config.Hosts, hostOf(r.Params)
	if hosts == nil || id == "" || !hosts.claim(id, c) {
		return c.call(ctx, r.Method, r.Params) // the bridge or the CLI refuses it
	}
	result, err := c.call(ctx, r.Method, r.Params)
	if err != nil {
		hosts.release(id)
	}
	return result, err
}

// callHost is any other method about a host. For the CLI, all connections of the shim are one: what only the owner may
// use is replaced by what does not exist, so that the CLI refuses it.
func (c *conn) callHost(ctx context.Context, r *rpcconn.Request) (json.RawMessage, error) {
	hosts, params := c.server.config.Hosts, r.Params
	if hosts == nil {
		return c.call(ctx, r.Method, params)
	}
	if owner := hosts.owner(hostOf(params)); owner != nil && owner != c {
		params = replaceMember(params, "hostId", uuid.NewString())
	}
	if id := about(params).SessionID; r.Method == "host.publishSession" && id != "" && !c.sessions.in(id) {
		params = replaceMember(params, "sessionId", uuid.NewString())
	}
	return c.call(ctx, r.Method, params)
}

// disposeHosts ends the hosts of a connection that ends.
func (c *conn) disposeHosts(ctx context.Context) {
	hosts := c.server.config.Hosts
	if hosts == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, leaveTimeout)
	defer cancel()
	for _, id := range hosts.of(c) {
		hosts.release(id)
		params := replaceMember([]byte(`{}`), "hostId", id)
		if _, err := c.call(ctx, "host.dispose", params); err != nil {
			c.log.Warn("ending a host failed", slog.Any("error", err))
		}
	}
}

// replaceMember returns a JSON object with another value of a member.
func replaceMember(params json.RawMessage, name, value string) json.RawMessage {
	members, err := jsonobj.Parse(params)
	if err != nil {
		return params
	}
	members.SetString(name, value)
	return members.JSON()
}
