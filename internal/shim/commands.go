package shim

import (
	"fmt"
	"sync"
)

// commands are the commands of a participant that wait for the bridge's reply.
type commands struct {
	mu      sync.Mutex
	waiting map[string]chan error
	lastID  int
	over    bool
}

// add returns the id of a new command, and the channel that gets its reply.
func (c *commands) add() (id string, reply <-chan error, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.over {
		return "", nil, errGone
	}
	c.lastID++
	id = fmt.Sprint(c.lastID)
	ch := make(chan error, 1)
	if c.waiting == nil {
		c.waiting = map[string]chan error{}
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
func (c *commands) answer(id string, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if reply := c.waiting[id]; reply != nil {
		reply <- err
		delete(c.waiting, id)
	}
}

// end fails all commands, and later ones.
func (c *commands) end() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.over = true
	for id, reply := range c.waiting {
		reply <- errGone
		delete(c.waiting, id)
	}
}
