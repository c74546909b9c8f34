//go:build nats

package natsserver

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/gofrs/flock"
	"github.com/nats-io/nats-server/v2/server"
)

// Built reports that this program has a NATS server.
const Built = true

// startTimeout bounds the start, which reads the stored streams.
const startTimeout = 30 * time.Second

// Server is a running NATS server. It listens nowhere: nats.InProcessServer connects to it.
type Server struct {
	*server.Server

	lock *flock.Flock
}

// Start starts a server that stores its data in a directory, and writes each message to the disk before it acknowledges
// it. The directory is made if it is missing, and locked until Stop.
func Start(dir string, log *slog.Logger) (*Server, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	lock := flock.New(filepath.Join(dir, "lock"))
	if free, err := lock.TryLock(); err != nil || !free {
		return nil, errors.Join(fmt.Errorf("another process uses %s", dir), err)
	}
	s, err := start(dir, log)
	if err != nil {
		return nil, errors.Join(err, lock.Unlock())
	}
	return &Server{s, lock}, nil
}

func start(dir string, log *slog.Logger) (*server.Server, error) {
	s, err := server.NewServer(&server.Options{
		ServerName: "embedded", DontListen: true, JetStream: true, StoreDir: dir, SyncAlways: true, NoSigs: true,
	})
	if err != nil {
		return nil, err
	}
	s.SetLogger(logger{log}, false, false)
	s.Start()
	if !s.ReadyForConnections(startTimeout) || !s.JetStreamEnabled() {
		s.Shutdown()
		s.WaitForShutdown()
		return nil, fmt.Errorf("the NATS server did not start in %s; the log has the cause", dir)
	}
	return s, nil
}

// Stop ends the server when its data are on the disk.
func (s *Server) Stop() error {
	s.Shutdown()
	s.WaitForShutdown()
	return s.lock.Unlock()
}

// logger passes on what an operator must know. Errors of connections are the client's to report.
type logger struct{ log *slog.Logger }

func (l logger) Errorf(format string, args ...any) {
	l.log.Error("NATS: " + fmt.Sprintf(format, args...))
}
func (l logger) Fatalf(format string, args ...any) {
	l.log.Error("NATS: " + fmt.Sprintf(format, args...))
}
func (l logger) Warnf(format string, args ...any) {
	l.log.Warn("NATS: " + fmt.Sprintf(format, args...))
}
func (logger) Noticef(string, ...any) {}
func (logger) Debugf(string, ...any)  {}
func (logger) Tracef(string, ...any)  {}
