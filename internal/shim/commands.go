package shim

import (
	"errors"
	"strconv"
	"sync"

	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
)

// errInterrupted is the reply to a command whose stream broke: the bridge may have carried it out or not.
var errInterrupted = errors.New("the stream to the bridge broke")

// commandReply is the bridge's reply to a command: done, or why it failed.
type commandReply struct {
	done *bridgev1.AttachDone
	err  error
}

// commands are the commands of a participant that wait for the bridge's reply.
type commands struct {
	mu      sync.Mutex
	waiting map[string]chan commandReply
	lastID  int
	over    bool
}

// add returns the id of a new command, and the channel that gets its reply.
func (c *commands) add() (id string, reply <-chan commandReply, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.over {
		return "", nil, errGone
	}
	c.lastID++
	id = strconv.Itoa(c.lastID)
	ch := make(chan commandReply, 1)
	if c.waiting == nil {
		c.waiting = map[string]chan commandReply{}
	}
	c.waiting[id] = ch
	return id, ch, nil
}

// drop forgets a command.
func (c *commands) drop(id string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.waiting, id)
}

// answer gives a command its reply.
func (c *commands) answer(id string, r commandReply) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if reply := c.waiting[id]; reply != nil {
		reply <- r
		delete(c.waiting, id)
	}
}

// interrupt fails all waiting commands, because their stream broke.
func (c *commands) interrupt() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.fail(errInterrupted)
}

// end fails all commands, and later ones.
func (c *commands) end() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.over = true
	c.fail(errGone)
}

// fail fails the waiting commands. The caller holds mu.
func (c *commands) fail(err error) {
	for id, reply := range c.waiting {
		reply <- commandReply{err: err}
		delete(c.waiting, id)
	}
}
