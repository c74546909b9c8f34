package natsstore

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// MinVersion is the oldest version of nats-server that is safe.
const MinVersion = "2.15.2"

// Sync says when the servers write to their disks.
type Sync string

// The values of Recipe.Sync.
const (
	// SyncAlways: before a message is acknowledged.
	SyncAlways Sync = "always"
	// SyncInterval: later. A power cut can lose acknowledged messages.
	SyncInterval Sync = "interval"
	// SyncUnknown: the account may not read the servers' settings.
	SyncUnknown Sync = "unknown"
)

// Recipe is what the store found about the servers.
type Recipe struct {
	// Version is the version of the server that is connected.
	Version string
	// Clustered reports whether the server belongs to a cluster.
	Clustered bool
	// Replicas is the number of servers that keep each stream.
	Replicas int
	Sync     Sync
	// Risks are the departures from what is safe, as sentences without a full stop.
	Risks []string
}

// Recipe returns what Open found about the servers.
func (s *Store) Recipe() Recipe { return s.recipe }

// check compares the servers with what is safe.
func (s *Store) check(ctx context.Context, cfg Config) error {
	info, err := s.js.AccountInfo(ctx)
	if err != nil {
		return &OpenError{Detail: "JetStream does not answer for the account; enable it", Err: err}
	}
	r := Recipe{
		Version: s.nc.ConnectedServerVersion(), Clustered: s.nc.ConnectedClusterName() != "", Replicas: cfg.Replicas,
	}
	if r.Replicas == 0 {
		r.Replicas = 1
		if r.Clustered {
			r.Replicas = 3
		}
	}
	r.Sync = s.readSync(ctx)
	r.Risks = risks(r)
	s.recipe, s.replicas = r, r.Replicas
	if r.Sync == SyncUnknown {
		s.log.Info("the account cannot read the settings of the NATS servers; make sure that sync_interval is always",
			"subject", settingsSubject, "domain", info.Domain)
	}
	if len(r.Risks) > 0 && !cfg.Unsafe {
		return &OpenError{Detail: strings.Join(r.Risks, "; ") + "; change it or accept the risk"}
	}
	for _, risk := range r.Risks {
		s.log.Warn("the NATS servers can lose data", "risk", risk)
	}
	return nil
}

// risks returns the departures from what is safe.
func risks(r Recipe) (list []string) {
	if olderThan(r.Version, MinVersion) {
		list = append(list, fmt.Sprintf("the NATS server has version %q: use %s or later", r.Version, MinVersion))
	}
	if r.Replicas < 3 {
		list = append(list, fmt.Sprintf("streams have %d replica, and lose data with its disk: use 3 or 5", r.Replicas))
	}
	if r.Sync == SyncInterval {
		list = append(list, "the NATS servers acknowledge messages before they are on disk, and lose them at a power "+
			"cut: set sync_interval to always")
	}
	return list
}

// olderThan compares two versions MAJOR.MINOR.PATCH. A preview is as old as its release. A version that cannot be
// parsed is older than all others.
func olderThan(version, than string) bool {
	parse := func(text string) []int {
		text, _, _ = strings.Cut(strings.TrimPrefix(text, "v"), "-")
		var out []int
		for _, part := range strings.Split(text, ".") {
			n, err := strconv.Atoi(part)
			if err != nil {
				return nil
			}
			out = append(out, n)
		}
		return out
	}
	return slices.Compare(parse(version), parse(than)) < 0
}

// settingsSubject is where servers tell their settings to the system account, and to accounts to which the system
// account exports it.
const settingsSubject = "$SYS.REQ.SERVER.PING.JSZ"

// settingsWait bounds the collection of the servers' answers; settingsQuiet ends it earlier.
const (
	settingsWait  = time.Second
	settingsQuiet = 200 * time.Millisecond
)

// readSync asks the servers when they write to their disks. One that does so late decides.
func (s *Store) readSync(ctx context.Context) Sync {
	ctx, cancel := context.WithTimeout(ctx, settingsWait)
	defer cancel()
	inbox := s.nc.NewInbox()
	replies, err := s.nc.SubscribeSync(inbox)
	if err != nil {
		return SyncUnknown
	}
	defer func() { _ = replies.Unsubscribe() }()
	if err := s.nc.PublishRequest(settingsSubject, inbox, []byte(`{"config":true}`)); err != nil {
		return SyncUnknown
	}
	found := SyncUnknown
	for {
		next, cancel := ctx, context.CancelFunc(func() {})
		if found != SyncUnknown {
			next, cancel = context.WithTimeout(ctx, settingsQuiet)
		}
		m, err := replies.NextMsgWithContext(next)
		cancel()
		if err != nil {
			return found
		}
		if found = parseSync(m.Data, found); found == SyncInterval {
			return found
		}
	}
}

// parseSync returns what a server's answer says about its disk, or else the value so far.
func parseSync(answer []byte, soFar Sync) Sync {
	var a struct {
		Data *struct {
			Disabled bool `json:"disabled"`
			Config   *struct {
				SyncAlways bool `json:"sync_always"`
			} `json:"config"`
		} `json:"data"`
	}
	if json.Unmarshal(answer, &a) != nil || a.Data == nil || a.Data.Disabled || a.Data.Config == nil {
		return soFar
	}
	if a.Data.Config.SyncAlways {
		return SyncAlways
	}
	return SyncInterval
}

// openStream opens a stream, and creates it if it is missing. A stream with other settings is left as it is, and is an
// error: its replicas and limits are the operator's to change.
func (s *Store) openStream(ctx context.Context, want jetstream.StreamConfig) (stream jetstream.Stream, err error) {
	err = repeat(ctx, openAttempt, func(ctx context.Context) error {
		stream, err = s.openOnce(ctx, want)
		return err
	})
	return stream, err
}

// repeat calls f, and again when it was not answered within limit: the servers of a new cluster may drop requests while
// they elect leaders.
func repeat(ctx context.Context, limit time.Duration, f func(context.Context) error) error {
	for {
		attempt, cancel := context.WithTimeout(ctx, limit)
		err := f(attempt)
		unanswered := attempt.Err() != nil
		cancel()
		if err == nil || !unanswered || ctx.Err() != nil {
			return err
		}
	}
}

// openOnce is openStream without repetitions.
func (s *Store) openOnce(ctx context.Context, want jetstream.StreamConfig) (jetstream.Stream, error) {
	want.Replicas, want.Storage, want.Duplicates = s.replicas, jetstream.FileStorage, duplicateWindow
	for range 2 {
		stream, err := s.js.Stream(ctx, want.Name)
		if err == nil {
			if differences := differ(want, stream.CachedInfo().Config); len(differences) > 0 {
				return nil, &OpenError{Detail: fmt.Sprintf(
					"the stream %s has other settings than this version makes (%s): choose another cluster name, or "+
						"change the stream", want.Name, strings.Join(differences, ", "))}
			}
			return stream, nil
		}
		if !errors.Is(err, jetstream.ErrStreamNotFound) {
			return nil, &OpenError{Detail: "reading the stream " + want.Name + " failed", Err: err}
		}
		stream, err = s.js.CreateStream(ctx, want)
		if err == nil {
			return stream, nil
		}
		if !errors.Is(err, jetstream.ErrStreamNameAlreadyInUse) { // else another replica was faster
			return nil, &OpenError{Detail: "creating the stream " + want.Name + " failed", Err: err}
		}
	}
	return nil, &OpenError{Detail: "the stream " + want.Name + " was deleted at the same time"}
}

// differ returns the settings that decide what a stream keeps, and that are not as wanted. An operator may limit its
// size and choose its servers.
func differ(want, got jetstream.StreamConfig) (list []string) {
	for _, setting := range []struct {
		name      string
		want, got any
	}{
		{"subjects", strings.Join(want.Subjects, " "), strings.Join(got.Subjects, " ")},
		{"retention", want.Retention, got.Retention},
		{"discard", want.Discard, got.Discard},
		{"storage", want.Storage, got.Storage},
		{"replicas", want.Replicas, got.Replicas},
		{"max_msgs", max(want.MaxMsgs, 0), max(got.MaxMsgs, 0)},
		{"max_msgs_per_subject", max(want.MaxMsgsPerSubject, 0), max(got.MaxMsgsPerSubject, 0)},
		{"max_age", want.MaxAge, got.MaxAge},
		{"duplicate_window", want.Duplicates, got.Duplicates},
		{"no_ack", want.NoAck, got.NoAck},
		{"sealed", want.Sealed, got.Sealed},
		{"deny_delete", want.DenyDelete, got.DenyDelete},
		{"deny_purge", want.DenyPurge, got.DenyPurge},
		{"allow_rollup_hdrs", want.AllowRollup, got.AllowRollup},
		{"allow_msg_ttl", want.AllowMsgTTL, got.AllowMsgTTL},
		{"allow_direct", want.AllowDirect, got.AllowDirect},
		{"mirror", want.Mirror != nil, got.Mirror != nil},
		{"sources", len(want.Sources), len(got.Sources)},
		{"subject_transform", want.SubjectTransform != nil, got.SubjectTransform != nil},
	} {
		if setting.want != setting.got {
			list = append(list, fmt.Sprintf("%s is %v, not %v", setting.name, setting.got, setting.want))
		}
	}
	return list
}
