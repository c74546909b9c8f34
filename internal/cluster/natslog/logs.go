package natslog

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/copilot-grpc/copilot-grpc/bridge/backend"
	"github.com/copilot-grpc/copilot-grpc/internal/cluster/jsapi"
)

const (
	defaultReadTimeout = 30 * time.Second
	// DefaultPartBytes is the default of Config.PartBytes.
	DefaultPartBytes = 256 << 10
	// maxOpens bounds how often Open tries to be the last writer.
	maxOpens = 16
)

// Config configures logs.
type Config struct {
	// Stream has the subjects of the logs.
	Stream jsapi.Stream
	// Subject returns the subject of a session's log. Different sessions have different subjects.
	Subject func(session string) string
	// PartBytes bounds a message. It must be less than the server's max_payload. The default is DefaultPartBytes.
	PartBytes int
	// ReadTimeout is for how long reading tries again while the server does not answer. The default is 30 s.
	ReadTimeout time.Duration
	// Lost is called when a later owner of a session has refused a change of its log. It may be nil.
	Lost func(error)
}

// Logs are the logs of sessions in a stream. It implements backend.Logs.
type Logs struct {
	cfg    Config
	stream *jsapi.Stream
	chunk  int // bytes of a body in a message
}

var _ backend.Logs = (*Logs)(nil)

// maxHead is the size of a part without its body.
const maxHead = 3 + 8 + 4*10

// New returns the logs of a stream.
func New(cfg Config) *Logs {
	cfg.ReadTimeout = cmp.Or(cfg.ReadTimeout, defaultReadTimeout)
	if cfg.Lost == nil {
		cfg.Lost = func(error) {}
	}
	cfg.PartBytes = cmp.Or(cfg.PartBytes, DefaultPartBytes)
	return &Logs{cfg: cfg, stream: &cfg.Stream, chunk: max(cfg.PartBytes-maxHead, 1)}
}

// Open implements backend.Logs. It reads the log twice: what a later replacement or trim removed must not be visited.
func (l *Logs) Open(
	session string, term, epoch uint64, visit func(number uint64, body []byte) error,
) (backend.Log, backend.Recovered, error) {
	ctx, cancel := context.WithTimeout(context.Background(), l.cfg.ReadTimeout)
	defer cancel()
	o := &log{
		logs: l, subject: l.cfg.Subject(session), term: term, writer: writer(rand.Uint64()),
		contents: contents{epoch: epoch},
	}
	fail := func(err error) (backend.Log, backend.Recovered, error) {
		return nil, backend.Recovered{}, fmt.Errorf("opening the log in stream %q: %w", l.stream.Name, err)
	}
	if err := o.fence(ctx); err != nil {
		return fail(err)
	}
	if err := o.recover(ctx, epoch); err != nil {
		return fail(err)
	}
	found := backend.Recovered{Mark: o.contents.mark}
	err := o.Read(0, func(number uint64, body []byte) bool {
		_ = visit(number, body) // an entry that the caller cannot use is skipped
		return true
	})
	if err != nil {
		return fail(err)
	}
	return o, found, nil
}

// fence stores the opening, after which earlier owners cannot write.
func (l *log) fence(ctx context.Context) error {
	for range maxOpens {
		last, err := l.logs.lastPart(ctx, l.subject)
		if err != nil {
			return err
		}
		if last.part != nil && last.part.term > l.term {
			return backend.ErrStale
		}
		l.at = last.seq
		err = l.store(ctx, &part{kind: kindOpen})
		if !errors.Is(err, backend.ErrStale) {
			return err
		}
	}
	return errors.New("others write to it all the time")
}

// recover reads what the log has.
func (l *log) recover(ctx context.Context, epoch uint64) error {
	var c contents
	var damage error
	var parts assembler
	var through uint64
	err := l.logs.stream.Scan(ctx, l.subject, 1, l.at, func(m jsapi.Message) bool {
		through = m.Seq
		p, err := parsePart(m.Data)
		if err == nil {
			if op := parts.add(m.Seq, p); op != nil {
				err = c.apply(op, m.At)
			}
		}
		if err != nil {
			damage = fmt.Errorf("message %d: %w", m.Seq, err)
		}
		return damage == nil
	})
	if err = errors.Join(err, damage); err != nil {
		return err
	}
	if through != l.at {
		return backend.ErrStale // the opening was purged: another owner deleted the log
	}
	if !c.appended {
		c.epoch = epoch
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.contents = c
	return nil
}

// lastPart is a subject's last message: number 0 and no part if there is none.
type lastPart struct {
	seq  uint64
	part *part
}

// lastPart returns a subject's last message.
func (l *Logs) lastPart(ctx context.Context, subject string) (lastPart, error) {
	m, err := l.stream.Last(ctx, subject)
	if err != nil || m.Seq == 0 {
		return lastPart{}, err
	}
	p, err := parsePart(m.Data)
	if err != nil {
		return lastPart{}, fmt.Errorf("message %d: %w", m.Seq, err)
	}
	return lastPart{m.Seq, p}, nil
}
