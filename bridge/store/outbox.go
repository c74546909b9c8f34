package store

import (
	"path/filepath"

	"github.com/copilot-grpc/copilot-grpc/bridge/backend"
	"github.com/copilot-grpc/copilot-grpc/bridge/journal/joint"
	"github.com/copilot-grpc/copilot-grpc/bridge/journal/segment"
)

const (
	outboxFolder = "outbox"
	// outboxState is the file with the state of an outbox, unless the joint log has a later one.
	outboxState = "log"
)

// outbox implements backend.Files. The first write of a file creates the folder.
type outbox struct {
	s   *Store
	id  joint.ID
	dir string
}

// Outbox is what a session has of the prompts whose turns have not ended. With FsyncAlways it survives a crash of the
// machine when a call returns, otherwise one of the process.
func (s *Store) Outbox(id string) backend.Files { return s.outbox(id) }

func (s *Store) outbox(id string) *outbox {
	return &outbox{s, joint.ID{Key: id, Kind: joint.Outbox}, filepath.Join(s.folder(id), outboxFolder)}
}

// Load implements backend.Files.
func (o *outbox) Load() ([]byte, error) {
	if v, ok := o.s.logs.Joint().Value(o.id); ok {
		return v.Body, nil
	}
	return o.Read(outboxState)
}

// Save implements backend.Files: the state goes to the joint log.
func (o *outbox) Save(state []byte) error {
	return o.s.logs.Joint().Put([]joint.Value{{ID: o.id, Body: state}}, o.s.always())
}

// List implements backend.Files.
func (o *outbox) List() (names []string, err error) {
	entries, err := o.s.fs.ReadDir(o.dir)
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		if !e.IsDir() && e.Name() != outboxState {
			names = append(names, e.Name())
		}
	}
	return names, nil
}

// Read implements backend.Files.
func (o *outbox) Read(name string) ([]byte, error) {
	return segment.ReadFile(o.s.fs, filepath.Join(o.dir, name))
}

// Write implements backend.Files.
func (o *outbox) Write(name string, data []byte) error { return o.write(name, data, o.s.always()) }

func (o *outbox) write(name string, data []byte, sync bool) error {
	if err := o.s.fs.MkdirAll(o.dir); err != nil {
		return err
	}
	return segment.WriteFile(o.s.fs, filepath.Join(o.dir, name), data, sync)
}

// Remove implements backend.Files.
func (o *outbox) Remove(name string) error { return o.s.fs.RemoveAll(filepath.Join(o.dir, name)) }
