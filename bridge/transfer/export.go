package transfer

import (
	"context"
	"errors"
	"io"
	"time"

	"github.com/copilot-grpc/copilot-grpc/bridge/caller"
	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
	"github.com/copilot-grpc/copilot-grpc/bridge/session"
	"github.com/copilot-grpc/copilot-grpc/bridge/session/record"
	"github.com/copilot-grpc/copilot-grpc/bridge/sessions"
	"github.com/copilot-grpc/copilot-grpc/bridge/transfer/archive"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
)

// ExportSession emits a session's archive.
func (svc *Service) ExportSession(
	ctx context.Context, r *bridgev1.ExportSessionRequest, emit func(*bridgev1.ExportSessionResponse) error,
) (err error) {
	c, id := caller.From(ctx), r.GetSessionId()
	if err := c.Require(caller.Own, "exporting a session"); err != nil {
		return err
	}
	if err := svc.cfg.Store.CheckOwn(ctx, id, "session_id"); err != nil {
		return err
	}
	release, err := svc.begin(c.Tenant)
	if err != nil {
		return err
	}
	defer release()
	e, err := svc.cfg.Store.OwnOrEvicted(ctx, id)
	if err != nil {
		return err
	}
	defer func() { svc.done(ctx, "session.export", id, err) }()
	packed, header, err := svc.pack(ctx, e)
	if err != nil {
		return svc.exportFailed(id, err)
	}
	defer packed.remove()
	return send(packed.file, header, emit)
}

// exportFailed gives an error of the disk or of the archive's format its reason.
func (svc *Service) exportFailed(id string, err error) error {
	var known *fault.Error
	switch {
	case errors.As(err, &known):
		return known
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return session.Classify(err, "")
	case errors.Is(err, archive.ErrInvalid), errors.Is(err, record.ErrUnknown): // the agent can write to the folder
		return fault.New(fault.SessionUnavailable, "session %q cannot be exported: %v", id, err).With("session_id", id)
	}
	svc.cfg.Log.Error("exporting a session failed", "session_id", id, "error", err)
	return fault.New(fault.SessionUnavailable,
		"session %q cannot be exported: the server's log has the cause", id).With("session_id", id)
}

// pack writes the archive of a session to a temporary file, which its caller removes.
func (svc *Service) pack(ctx context.Context, e *sessions.Entry) (*spool, *bridgev1.ExportSessionHeader, error) {
	parts, err := newSpool()
	if err != nil {
		return nil, nil, err
	}
	defer parts.remove()
	m := archive.Manifest{Session: e.Session.ID(), CreatedAt: time.Now().UTC()}
	var st state
	err = e.Session.AtRest(ctx, func() (err error) {
		m.Epoch, m.Seq, st, err = svc.copy(ctx, e, parts)
		return err
	})
	if err != nil {
		return nil, nil, err
	}
	packed, err := newSpool()
	if err != nil {
		return nil, nil, err
	}
	digest, err := parts.pack(m, packed)
	if err != nil {
		packed.remove()
		return nil, nil, err
	}
	return packed, &bridgev1.ExportSessionHeader{
		SizeBytes: packed.size, Sha256: digest, Position: &bridgev1.Position{Epoch: m.Epoch, Seq: m.Seq},
		MissingSecrets: st.Missing,
	}, nil
}

// copy copies a session at rest.
func (svc *Service) copy(ctx context.Context, e *sessions.Entry, into *spool) (epoch, seq uint64, st state, err error) {
	profile, err := svc.cfg.Runtimes.ProfileNow(e)
	if err == nil {
		err = svc.checkPlace()
	}
	if err == nil && profile.SessionFS != nil {
		err = fault.New(fault.FeatureDisabled, "the session's files are with its participants (session_fs)")
	}
	if err != nil {
		return 0, 0, st, err
	}
	exported, err := svc.cfg.Store.Export(e)
	if err == nil {
		st, err = newState(svc.cfg.Codec, e.Session.ID(), exported, caller.From(ctx))
	}
	if err != nil {
		return 0, 0, st, err
	}
	text, err := marshal(st)
	if err != nil {
		return 0, 0, st, err
	}
	err = into.add(stateFile, func(w io.Writer) error {
		_, err := w.Write(text)
		return err
	})
	if err != nil {
		return 0, 0, st, err
	}
	err = into.add(journalFile, func(w io.Writer) error {
		last, err := writeEvents(ctx, e.Session.Journal(), w)
		epoch, seq = last.Epoch, last.Seq
		return err
	})
	if err != nil {
		return 0, 0, st, err
	}
	if err = copyFolder(profile.StateDir(), e.Session.ID(), into); errors.Is(err, errNoFile) {
		err = nil // the session was never used
	}
	return epoch, seq, st, err
}

// send emits the header and the content of a file.
func send(
	file io.Reader, header *bridgev1.ExportSessionHeader, emit func(*bridgev1.ExportSessionResponse) error,
) error {
	err := emit(&bridgev1.ExportSessionResponse{Piece: &bridgev1.ExportSessionResponse_Header{Header: header}})
	for err == nil {
		chunk := make([]byte, chunkBytes) // the message may be sent after emit has returned
		var n int
		if n, err = io.ReadFull(file, chunk); n > 0 {
			piece := &bridgev1.ExportSessionResponse_Chunk{Chunk: chunk[:n]}
			if err := emit(&bridgev1.ExportSessionResponse{Piece: piece}); err != nil {
				return err
			}
		}
	}
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return nil
	}
	return err
}
