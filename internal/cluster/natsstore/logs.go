package natsstore

import (
	"context"

	"github.com/copilot-grpc/copilot-grpc/bridge/backend"
	"github.com/copilot-grpc/copilot-grpc/internal/cluster/jsapi"
	"github.com/copilot-grpc/copilot-grpc/internal/cluster/natsblob"
	"github.com/copilot-grpc/copilot-grpc/internal/cluster/natslog"
)

// subjects returns the requests to the stream of a kind, and the subject of a session in it.
func (s *Store) subjects(kind string) (jsapi.Stream, func(session string) string) {
	stream := jsapi.Stream{JetStream: s.js, Name: s.names.stream(kind), Timeout: attemptTimeout}
	return stream, func(session string) string { return s.names.subject(kind, token(session)) }
}

// Logs keeps the logs of sessions. lost is called when a later owner has refused a change.
func (s *Store) Logs(lost func(error)) backend.Logs {
	stream, subject := s.subjects("log")
	return natslog.New(natslog.Config{Stream: stream, Subject: subject, Lost: lost})
}

// Blobs keeps snapshots of the CLI's folders.
func (s *Store) Blobs() *natsblob.Blobs {
	stream, subject := s.subjects("blob")
	return natsblob.New(natsblob.Config{Stream: stream, Subject: subject})
}

// RemoveLog removes the log of a session that its owner has removed.
func (s *Store) RemoveLog(ctx context.Context, session string) error {
	ctx, cancel := s.call(ctx)
	defer cancel()
	stream, subject := s.subjects("log")
	return stream.Purge(ctx, subject(session), 0)
}
