package natsstore

import (
	"context"
	"fmt"
	"io/fs"
	"maps"
	"strconv"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/copilot-grpc/copilot-grpc/bridge/backend"
)

// maxPiece bounds the data of a message of a file in bytes; half of the server's limit bounds it too.
const maxPiece = 256 << 10

func (s *Store) piece() int { return min(maxPiece, int(s.nc.MaxPayload()/2)) }

// header returns the headers that all messages of a file have.
func header(name string, term uint64) nats.Header {
	h := nats.Header{}
	h.Set(headerName, strconv.QuoteToASCII(name))
	h.Set(headerTerm, strconv.FormatUint(term, 10))
	return h
}

// replace gives a file the content of a message. put stores it, in pieces if it is large. One message replaces all
// earlier ones at once. Several do so when the last one is stored, and the earlier ones are removed after that. No
// message of another writer may come in between: put refuses them, or there is no other writer.
func (s *Store) replace(
	ctx context.Context, stream jetstream.Stream, whole nats.Msg,
	put func(context.Context, *nats.Msg) (sequence uint64, err error),
) error {
	pieces := split(whole.Data, s.piece())
	var first uint64
	for i, piece := range pieces {
		m := &nats.Msg{Subject: whole.Subject, Data: piece, Header: maps.Clone(whole.Header)}
		m.Header.Set(headerPart, fmt.Sprintf("%d/%d", i+1, len(pieces)))
		if len(pieces) == 1 {
			m.Header.Set(jetstream.MsgRollup, jetstream.MsgRollupSubject)
		}
		sequence, err := put(ctx, m)
		if err != nil {
			return err
		}
		if i == 0 {
			first = sequence
		}
	}
	if len(pieces) == 1 {
		return nil
	}
	return purge(ctx, stream, whole.Subject, first)
}

// replace gives a file of the session new content. The caller holds mu.
func (o *Session) replace(ctx context.Context, subject, name string, data []byte) error {
	m := nats.Msg{Subject: subject, Data: data, Header: header(name, o.term)}
	return o.store.replace(ctx, o.store.sessions, m, func(ctx context.Context, m *nats.Msg) (uint64, error) {
		return o.publish(ctx, m)
	})
}

// readAttempts bounds the attempts to read a file that is replaced meanwhile.
const readAttempts = 3

// read returns the content of a file.
func read(ctx context.Context, stream jetstream.Stream, subject string) (c content, err error) {
	for range readAttempts {
		last, err := lastOf(ctx, stream, subject)
		if last == nil || err != nil {
			return content{}, err
		}
		c = content{}
		if part := last.Header.Get(headerPart); part == "1/1" || part == partRemoved {
			return c, c.add(last.Header, last.Data, last.Sequence)
		}
		err = walk(ctx, stream, subject, func(m *jetstream.RawStreamMsg) error {
			return c.add(m.Header, m.Data, m.Sequence)
		})
		if err == nil && c.exists {
			return c, nil
		}
		if err != nil && ctx.Err() != nil {
			return content{}, err
		}
	}
	return c, err
}

// readAll returns the files whose subjects a filter matches, by subject.
func readAll(ctx context.Context, stream jetstream.Stream, filter string) (map[string]*content, error) {
	all := map[string]*content{}
	err := walk(ctx, stream, filter, func(m *jetstream.RawStreamMsg) error {
		c := all[m.Subject]
		if c == nil {
			c = &content{}
			all[m.Subject] = c
		}
		return c.add(m.Header, m.Data, m.Sequence)
	})
	maps.DeleteFunc(all, func(_ string, c *content) bool { return !c.exists })
	return all, err
}

// Outbox returns the files of the session's unfinished prompts.
func (o *Session) Outbox() backend.Files { return outbox{o} }

// outbox implements backend.Files.
type outbox struct{ *Session }

// change makes a change of a file, in turn.
func (f outbox) change(what, name string, do func(ctx context.Context, subject string) error) error {
	ctx, cancel := f.store.call(context.Background())
	defer cancel()
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := do(ctx, f.subject("file", token(name))); err != nil {
		return fmt.Errorf("%s the file %q of session %q: %w", what, name, f.key, err)
	}
	return nil
}

// stateFile is the file with the state of an outbox.
const stateFile = "log"

// Load implements backend.Files.
func (f outbox) Load() ([]byte, error) { return f.Read(stateFile) }

// Save implements backend.Files.
func (f outbox) Save(state []byte) error { return f.Write(stateFile, state) }

// List implements backend.Files.
func (f outbox) List() ([]string, error) {
	ctx, cancel := f.store.call(context.Background())
	defer cancel()
	names, err := f.list(ctx)
	if err != nil {
		return nil, fmt.Errorf("listing the files of session %q: %w", f.key, err)
	}
	return names, nil
}

func (f outbox) list(ctx context.Context) (names []string, err error) {
	info, err := retried(ctx, func(ctx context.Context) (*jetstream.StreamInfo, error) {
		return f.store.sessions.Info(ctx, jetstream.WithSubjectFilter(f.subject("file", ">")))
	})
	if err != nil {
		return nil, err
	}
	for subject := range info.State.Subjects {
		c, err := read(ctx, f.store.sessions, subject)
		if err != nil {
			return nil, err
		}
		if c.exists && c.name != stateFile {
			names = append(names, c.name)
		}
	}
	return names, nil
}

// Read implements backend.Files. A missing file gives fs.ErrNotExist.
func (f outbox) Read(name string) ([]byte, error) {
	ctx, cancel := f.store.call(context.Background())
	defer cancel()
	c, err := read(ctx, f.store.sessions, f.subject("file", token(name)))
	if err == nil && (!c.exists || c.name != name) {
		err = fs.ErrNotExist
	}
	if err != nil {
		return nil, fmt.Errorf("reading the file %q of session %q: %w", name, f.key, err)
	}
	return c.data, nil
}

// Write implements backend.Files.
func (f outbox) Write(name string, data []byte) error {
	return f.change("writing", name, func(ctx context.Context, subject string) error {
		return f.replace(ctx, subject, name, data)
	})
}

// Remove implements backend.Files.
func (f outbox) Remove(name string) error {
	return f.change("removing", name, func(ctx context.Context, subject string) error {
		last, err := lastOf(ctx, f.store.sessions, subject)
		if last == nil || err != nil {
			return err
		}
		m := &nats.Msg{Subject: subject, Header: header(name, f.term)}
		m.Header.Set(headerPart, partRemoved)
		m.Header.Set(jetstream.MsgRollup, jetstream.MsgRollupSubject)
		_, err = f.publish(ctx, m, jetstream.WithMsgTTL(removedFor))
		return err
	})
}
