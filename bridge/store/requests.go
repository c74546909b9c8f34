package store

import (
	"encoding/json"
	"errors"
	"sync"
	"time"

	"github.com/copilot-grpc/copilot-grpc/bridge/journal"
	"github.com/copilot-grpc/copilot-grpc/bridge/journal/segment"
)

// Request is what is kept of a request that may come twice.
type Request struct {
	Key     string    `json:"key"`
	Sum     []byte    `json:"sum"` // of the request
	Expires time.Time `json:"expires"`
	// Type and Answer are the answer; without one the request was begun, at which time
	// Since was true.
	Type   string `json:"type,omitempty"`
	Answer []byte `json:"answer,omitempty"`
	Since  []byte `json:"since,omitempty"`
	// Over: the request failed, and can be made again.
	Over bool `json:"over,omitempty"`
}

// Requests is the log of requests. Its methods may be called from any goroutine.
type Requests struct {
	sync bool

	mu  sync.Mutex
	log *segment.Log
}

// Requests opens the log of requests, and returns what it holds and is not too old,
// oldest first.
func (s *Store) Requests(keep time.Duration) (*Requests, []Request, error) {
	last := map[string]int{}
	var all []Request
	o := segment.Options{FS: s.fs, SyncFiles: s.cfg.Journals.Fsync != journal.FsyncNever}
	log, found, err := segment.Open(s.path("requests"), 1, o, func(_ uint64, body []byte) error {
		var r Request
		if err := json.Unmarshal(body, &r); err != nil {
			return err
		}
		if i, ok := last[r.Key]; ok {
			all[i].Key = "" // a later word counts
		}
		last[r.Key] = len(all)
		all = append(all, r)
		return nil
	})
	if err != nil {
		return nil, nil, err
	}
	if found.Cut > 0 || len(found.SetAside) > 0 {
		s.log.Warn("some remembered requests are lost", "bytes", found.Cut, "files", len(found.SetAside))
	}
	now := time.Now()
	live := all[:0]
	for _, r := range all {
		if r.Key != "" && !r.Over && r.Expires.After(now) {
			live = append(live, r)
		}
	}
	if _, err := log.Trim(0, now.Add(-keep)); err != nil {
		s.log.Warn("old requests not dropped", "error", err)
	}
	return &Requests{log: log, sync: s.cfg.Journals.Fsync == journal.FsyncAlways}, live, nil
}

// Add notes a request.
func (r *Requests) Add(q Request) error {
	body, err := json.Marshal(q)
	if err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	err = r.log.Append([]segment.Entry{{Number: r.log.Last() + 1, Body: body}})
	if err == nil && r.sync {
		_, err = r.log.Sync()
	}
	return err
}

// Trim drops what is older than the time that requests are kept.
func (r *Requests) Trim(before time.Time) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	_, err := r.log.Trim(0, before)
	return err
}

// Close ends the log.
func (r *Requests) Close() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	_, err := r.log.Sync()
	return errors.Join(err, r.log.Rest())
}
