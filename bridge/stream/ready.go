package stream

import "sync"

// readyQueue holds the session streams that have something to send, each once, in the order in
// which they became ready. Journals add to it from any goroutine; the stream waits for signal.
type readyQueue struct {
	mu     sync.Mutex
	ready  []*sessionStream // and their ready members
	signal chan struct{}    // capacity 1
}

func newReadyQueue() readyQueue { return readyQueue{signal: make(chan struct{}, 1)} }

func (q *readyQueue) add(s *sessionStream) {
	q.mu.Lock()
	if !s.ready {
		s.ready = true
		q.ready = append(q.ready, s)
	}
	q.mu.Unlock()
	select {
	case q.signal <- struct{}{}:
	default:
	}
}

// empty reports that no session stream is ready.
func (q *readyQueue) empty() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.ready) == 0
}

// take appends the ready session streams to dst and empties the queue.
func (q *readyQueue) take(dst []*sessionStream) []*sessionStream {
	q.mu.Lock()
	defer q.mu.Unlock()
	dst = append(dst, q.ready...)
	for _, s := range q.ready {
		s.ready = false
	}
	clear(q.ready)
	q.ready = q.ready[:0]
	return dst
}
