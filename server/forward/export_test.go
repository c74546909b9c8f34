package forward

// Reload reads the files again, as Watch does when they change.
func (c *Credentials) Reload() { c.reload() }

// Addresses returns the addresses of the connections to other replicas.
func (f *Forwarder) Addresses() (out []string) {
	f.peers.mu.Lock()
	defer f.peers.mu.Unlock()
	for address := range f.peers.conns {
		out = append(out, address)
	}
	return out
}
