package transfer

import (
	"cmp"
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/copilot-grpc/copilot-grpc/bridge/caller"
	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
	"github.com/copilot-grpc/copilot-grpc/bridge/fields"
	"github.com/copilot-grpc/copilot-grpc/bridge/runtime"
	"github.com/copilot-grpc/copilot-grpc/bridge/session"
	"github.com/copilot-grpc/copilot-grpc/bridge/tenancy"
	"github.com/copilot-grpc/copilot-grpc/bridge/transfer/archive"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
)

// The fields of errors: of the caller's header, and of the configuration in the archive.
const (
	inHeader  = "header."
	inArchive = "archive."
	provider  = "provider"
)

// workingDirectory is the member of a configuration with the session's working directory.
const workingDirectory = "workingDirectory"

// ImportSession makes a session of an archive.
func (svc *Service) ImportSession(
	ctx context.Context, h *bridgev1.ImportSessionHeader, next func() ([]byte, error),
) (*bridgev1.ImportSessionResponse, error) {
	if err := svc.cfg.Shutdown.Accepting(); err != nil {
		return nil, err
	}
	c := caller.From(ctx)
	if err := c.Require(caller.Own, "importing a session"); err != nil {
		return nil, err
	}
	if err := svc.checkPlace(); err != nil {
		return nil, err
	}
	if id := h.GetSessionId(); id != "" {
		if err := tenancy.CheckID(id, inHeader+"session_id"); err != nil {
			return nil, err
		}
	}
	release, err := svc.begin(c.Tenant)
	if err != nil {
		return nil, err
	}
	defer release()
	im := &importing{svc: svc, caller: c, header: h, profile: svc.cfg.Tenants.CallerProfile(ctx)}
	out, err := im.run(ctx, &chunks{next: next})
	if err != nil {
		err = svc.importFailed(err)
	}
	svc.done(ctx, "session.import", cmp.Or(out.GetSession().GetSessionId(), h.GetSessionId()), err)
	return out, err
}

// importFailed gives an error of the archive or of the disk its reason.
func (svc *Service) importFailed(err error) error {
	var known *fault.Error
	switch {
	case errors.As(err, &known):
		return known
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return session.Classify(err, "")
	case errors.Is(err, archive.ErrLimit):
		return tooMuch("archive", "%v", err).WithField("chunk")
	case errors.Is(err, archive.ErrInvalid), errors.Is(err, archive.ErrVersion):
		return fault.New(fault.InvalidField, "%v", err).WithField("chunk")
	}
	svc.cfg.Log.Error("importing a session failed", "error", err)
	return fault.New(fault.SessionUnavailable, "the import failed: the server's log has the cause")
}

// importing is an import.
type importing struct {
	svc     *Service
	caller  caller.Caller
	header  *bridgev1.ImportSessionHeader
	profile runtime.Profile
	staging *staging
}

// run carries out the import. After an error nothing is left of it.
func (im *importing) run(ctx context.Context, from io.Reader) (out *bridgev1.ImportSessionResponse, err error) {
	home := im.profile.StateDir()
	if home == "" {
		return nil, fault.New(fault.FeatureDisabled, "the state directory of the CLI is unknown")
	}
	if im.staging, err = newStaging(home); err != nil {
		return nil, err
	}
	defer func() {
		if left := im.staging.remove(); err != nil {
			err = errors.Join(err, left)
		}
	}()
	m, err := im.staging.unpack(ctx, from, func(bytes int64) error {
		return im.svc.cfg.Admission.CheckJournals(im.caller.Tenant, bytes)
	})
	if err != nil {
		return nil, err
	}
	id := cmp.Or(im.header.GetSessionId(), m.Session)
	if tenancy.CheckID(id, "") != nil {
		return nil, invalid("the id %.140q of its session is not one", m.Session)
	}
	in, err := im.read(ctx, id)
	if err != nil {
		return nil, err
	}
	if err := im.svc.cfg.Sessions.CheckNew(ctx, im.profile, id); err != nil {
		return nil, fields.Rename(err, "session_id", inHeader+"session_id")
	}
	if err := im.staging.prepare(id, in.Info.Context.Cwd, in.Info.Name, im.profile.User); err != nil {
		return nil, err
	}
	s, count, err := im.insert(ctx, id, in)
	if err != nil {
		return nil, err
	}
	return &bridgev1.ImportSessionResponse{
		Session: s.Snapshot(), OriginSessionId: m.Session, EventCount: count, MissingSecrets: in.Missing,
	}, nil
}

// read returns the session of the archive, with a configuration that the caller may set.
func (im *importing) read(ctx context.Context, id string) (in session.Imported, err error) {
	text, err := im.staging.folder.ReadFile(stateFile)
	if err != nil {
		return in, err
	}
	st, create, err := parseState(text)
	if err != nil {
		return in, invalid("%v", err)
	}
	dir, err := im.workingDirectory()
	if err != nil {
		return in, err
	}
	foreign, err := im.foreign(create, dir)
	if err == nil {
		err = caller.CheckRequest(ctx, foreign)
	}
	if err != nil {
		return in, fields.Within(err, inArchive)
	}
	in.Missing = im.override(create, st.Missing)
	if in.Opening, err = im.svc.cfg.Parser.Creation(im.caller, create, inArchive, false); err != nil {
		return in, im.ownFields(err)
	}
	// Without a directory in the configuration the CLI takes that of its record, which is written anew with this one.
	dir = cmp.Or(in.Opening.Config.String(workingDirectory), dir)
	in.HasHistory = im.staging.history
	folder := filepath.Join(im.profile.StateDir(), sessionsFolder, id)
	in.Info = st.info(folder, dir)
	return in, nil
}

// workingDirectory returns the directory of sessions that do not set one.
func (im *importing) workingDirectory() (string, error) {
	if dir := im.profile.Dir; dir != "" {
		return dir, nil
	}
	return os.Getwd()
}

// foreign returns the part of a request that the archive's author has chosen: not the header, which the server has
// checked, and not what the server itself sets. dir is the working directory of sessions that do not set one.
func (im *importing) foreign(
	create *bridgev1.CreateSessionRequest, dir string,
) (*bridgev1.CreateSessionRequest, error) {
	out := &bridgev1.CreateSessionRequest{
		Config: create.GetConfig(), ProviderRef: create.GetProviderRef(), Labels: create.GetLabels(),
		Handlers: create.GetHandlers(), Lifetime: create.GetLifetime(), CallbackTimeout: create.GetCallbackTimeout(),
		OnInterruption: create.GetOnInterruption(),
	}
	if im.header.GetConfig() != nil {
		out.Config = nil
		return out, nil
	}
	config, err := im.svc.cfg.Parser.Requested(im.caller, create.GetConfig())
	if err != nil {
		return nil, err
	}
	if config.GetWorkingDirectory() == dir {
		config.WorkingDirectory = nil
	}
	out.Config = config
	return out, nil
}

// override replaces what the header says, and returns the secrets that are still missing.
func (im *importing) override(create *bridgev1.CreateSessionRequest, missing []string) []string {
	if config := im.header.GetConfig(); config != nil {
		create.Config, create.ProviderRef, missing = config, "", nil
	}
	if ref := im.header.GetProviderRef(); ref != "" {
		create.ProviderRef = ref
		if im.header.GetConfig() == nil && create.GetConfig() != nil {
			create.Config.Provider = nil
		}
		missing = slices.DeleteFunc(missing, func(path string) bool {
			return path == provider || strings.HasPrefix(path, provider+".")
		})
	}
	return missing
}

// ownFields corrects the path in an error about a field that the header has set.
func (im *importing) ownFields(err error) error {
	if im.header.GetConfig() != nil {
		err = fields.Rename(err, inArchive+"config", inHeader+"config")
	}
	if im.header.GetProviderRef() != "" {
		err = fields.Rename(err, inArchive+"provider_ref", inHeader+"provider_ref")
	}
	return err
}

// insert makes the session, with its events and its folder.
func (im *importing) insert(ctx context.Context, id string, in session.Imported) (
	s *session.Session, count int64, err error,
) {
	store := im.svc.cfg.Store
	e, fresh, err := store.GetOrCreate(ctx, im.caller.Tenant, id)
	if err != nil {
		return nil, 0, err
	}
	if !fresh {
		return nil, 0, exists(id)
	}
	defer e.Session.Loader().Opened()
	if e.Session.Journal().Inherited() {
		store.Remove(e)
		return nil, 0, exists(id)
	}
	im.svc.cfg.Runtimes.SetProfile(e, im.profile)
	err = e.Session.Import(ctx, in, func() (err error) {
		if count, err = im.fill(ctx, e.Session); err != nil {
			return err
		}
		if err = im.svc.cfg.Admission.CheckJournals(im.caller.Tenant, 0); err != nil { // with what the other imports have added
			return err
		}
		if err = im.staging.place(id, im.profile.User); errors.Is(err, fs.ErrExist) {
			return exists(id)
		}
		return err
	})
	if err != nil {
		store.Remove(e)
		return nil, 0, err
	}
	if err := store.Save(e); err != nil {
		return nil, 0, err
	}
	store.TrackDisconnected(e)
	return e.Session, count, nil
}

// fill adds the events of the archive to the journal.
func (im *importing) fill(ctx context.Context, s *session.Session) (int64, error) {
	file, err := im.staging.folder.Open(journalFile)
	if err != nil {
		return 0, err
	}
	defer file.Close()
	return readEvents(ctx, file, s.Journal())
}

func exists(id string) error {
	return fault.New(fault.SessionExists, "session %q exists: import the archive with another id", id).
		WithField(inHeader+"session_id").With("session_id", id)
}

// chunks reads the messages of a stream.
type chunks struct {
	next func() ([]byte, error)
	rest []byte
}

// Read implements io.Reader.
func (c *chunks) Read(p []byte) (n int, err error) {
	for len(c.rest) == 0 {
		if c.rest, err = c.next(); err != nil {
			return 0, err
		}
	}
	n = copy(p, c.rest)
	c.rest = c.rest[n:]
	return n, nil
}
