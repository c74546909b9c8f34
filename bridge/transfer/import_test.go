package transfer_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/copilot-grpc/copilot-grpc/bridge/caller"
	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
	"github.com/copilot-grpc/copilot-grpc/bridge/fields"
	"github.com/copilot-grpc/copilot-grpc/bridge/journal"
	"github.com/copilot-grpc/copilot-grpc/bridge/quota"
	"github.com/copilot-grpc/copilot-grpc/bridge/sessions"
	"github.com/copilot-grpc/copilot-grpc/bridge/store"
	"github.com/copilot-grpc/copilot-grpc/bridge/transfer/archive"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
	cliv1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/cli/v1"
	"github.com/copilot-grpc/copilot-grpc/internal/fsck"
	"github.com/copilot-grpc/copilot-grpc/internal/testing/bridgetest"
	"github.com/copilot-grpc/copilot-grpc/internal/testing/fakecli"
)

const (
	importedStart = `{"type":"session.start","data":{},"id":"00000000-0000-0000-0000-000000000001"}` + "\n"
	importedLine  = `{"event":{"type":"user.message","data":{},"id":"00000000-0000-0000-0000-000000000002"}}` + "\n"
)

// archived is the content of an archive; parts of a test change it.
type archived map[string]string

func newArchived() archived {
	return archived{
		"session.json": `{"create":{"config":{"model":"m"},"labels":{"team":"a"},"onInterruption":2},` +
			`"missingSecrets":["provider.apiKey"]}`,
		"journal.jsonl":        `{"event":` + strings.TrimSpace(importedStart) + "}\n" + importedLine,
		"history/events.jsonl": importedStart, "history/files/a b.txt": "text",
	}
}

// pack makes an archive of a session.
func (a archived) pack(t *testing.T, session string) []byte {
	t.Helper()
	m := archive.Manifest{Session: session}
	var names []string
	for name, text := range a {
		sum := sha256.Sum256([]byte(text))
		m.Parts = append(m.Parts, archive.Part{Name: name, Size: int64(len(text)), SHA256: hex.EncodeToString(sum[:])})
		names = append(names, name)
	}
	var out bytes.Buffer
	w, err := archive.NewWriter(&out, m)
	for _, name := range names {
		if err == nil {
			err = w.Add(name, strings.NewReader(a[name]))
		}
	}
	if err == nil {
		err = w.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// importArchive imports a text in pieces of a few bytes.
func importArchive(ctx context.Context, r *bridgetest.Bridge, text []byte, h *bridgev1.ImportSessionHeader,
) (*bridgev1.ImportSessionResponse, error) {
	pieces := slices.Collect(slices.Chunk(text, 100))
	return r.Transfers.ImportSession(ctx, h, func() ([]byte, error) {
		if len(pieces) == 0 {
			return nil, io.EOF
		}
		next := pieces[0]
		pieces = pieces[1:]
		return next, nil
	})
}

// filesIn lists the files below a folder.
func filesIn(t *testing.T, folder string) (names []string) {
	t.Helper()
	err := fs.WalkDir(os.DirFS(folder), ".", func(name string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			names = append(names, name)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return names
}

// newHome makes a bridge whose CLI has a state directory.
func newHome(t *testing.T) (r *bridgetest.Bridge, home string) {
	t.Helper()
	home = t.TempDir()
	return bridgetest.New(t, fakecli.Script{}, func(c *bridgetest.Options) { c.Profile.Home = home }), home
}

func TestImport(t *testing.T) {
	t.Parallel()
	r, home := newHome(t)
	out, err := importArchive(t.Context(), r, newArchived().pack(t, "s1"), nil)
	if err != nil {
		t.Fatal(err)
	}
	s := out.GetSession()
	if s.GetState() != bridgev1.SessionState_SESSION_STATE_DISCONNECTED || s.GetLabels()["team"] != "a" ||
		s.GetOnInterruption() != bridgev1.OnInterruption_ON_INTERRUPTION_CONTINUE ||
		out.GetEventCount() != 2 || s.GetPosition().GetSeq() != 2 ||
		!slices.Equal(out.GetMissingSecrets(), []string{"provider.apiKey"}) {
		t.Errorf("imported %v", out)
	}
	want := []string{
		"session-state/s1/events.jsonl", "session-state/s1/files/a b.txt", "session-state/s1/workspace.yaml",
	}
	if got := filesIn(t, home); !slices.Equal(got, want) {
		t.Errorf("files %q, want %q", got, want)
	}
	text, err := os.ReadFile(filepath.Join(home, want[2]))
	if err != nil || !strings.HasPrefix(string(text), "id: \"s1\"\ncwd: \"/") {
		t.Errorf("the workspace is %q: %v", text, err)
	}
}

// TestImportRefused: a refused import has an error that names the cause, and leaves nothing.
func TestImportRefused(t *testing.T) {
	t.Parallel()
	set := func(name, text string) func(archived) { return func(a archived) { a[name] = text } }
	for name, c := range map[string]struct {
		change  func(archived)
		session string
		header  *bridgev1.ImportSessionHeader
		want    fault.Reason
		field   string
	}{
		"no state":         {change: func(a archived) { delete(a, "session.json") }, field: "chunk"},
		"no journal":       {change: func(a archived) { delete(a, "journal.jsonl") }, field: "chunk"},
		"other file":       {change: set("x", ""), field: "chunk"},
		"lock":             {change: set("history/inuse.1.lock", ""), field: "chunk"},
		"workspace":        {change: set("history/workspace.yaml", "cwd: /"), field: "chunk"},
		"database":         {change: set("history/session.db", ""), field: "chunk"},
		"large state":      {change: set("session.json", strings.Repeat(" ", 5<<20)), field: "chunk"},
		"state":            {change: set("session.json", "{"), field: "chunk"},
		"future field":     {change: set("session.json", `{"create":{"config":{"mood":1}}}`), field: "chunk"},
		"event":            {change: set("journal.jsonl", "{}\n"), field: "chunk"},
		"event twice":      {change: set("journal.jsonl", importedLine+importedLine), field: "chunk"},
		"ephemeral event":  {change: set("journal.jsonl", `{"event":{"type":"x","ephemeral":true}}`), field: "chunk"},
		"record":           {change: set("history/events.jsonl", "{}\n"), field: "chunk"},
		"empty record":     {change: set("history/events.jsonl", ""), field: "chunk"},
		"other tenant":     {session: "acme.s1", field: "chunk"},
		"path":             {session: "../s1", field: "chunk"},
		"bad id":           {header: &bridgev1.ImportSessionHeader{SessionId: "a/b"}, field: "header.session_id"},
		"unknown provider": {header: &bridgev1.ImportSessionHeader{ProviderRef: "x"}, field: "header.provider_ref"},
		"provider": {
			change: set("session.json", `{"create":{"providerRef":"x"}}`), field: "archive.provider_ref",
		},
		"label": {change: set("session.json", `{"create":{"labels":{"":""}}}`), field: "archive.labels"},
		"extra": {
			change: set("session.json", `{"create":{"config":{"jsonExtra":"{\"sessionId\":\"x\"}"}}}`),
			want:   fault.JSONExtraForbidden, field: "archive.config.json_extra",
		},
		"forbidden": {
			change: set("session.json", `{"create":{"config":{"workingDirectory":"/etc"}}}`),
			want:   fault.Forbidden, field: "archive.config.working_directory",
		},
		"exists": {session: "taken", want: fault.SessionExists, field: "header.session_id"},
		"event too long": {
			change: set("journal.jsonl", strings.Repeat("x", 33<<20)), want: fault.LimitExceeded, field: "chunk",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, home := newHome(t)
			r.Create("taken")
			content := newArchived()
			if c.change != nil {
				c.change(content)
			}
			ctx := caller.WithRequestCheck(t.Context(), func(_ context.Context, m proto.Message) error {
				if q, ok := m.(*bridgev1.CreateSessionRequest); ok && q.GetConfig().GetWorkingDirectory() != "" {
					return fault.New(fault.Forbidden, "no").WithField("config.working_directory")
				}
				return nil
			})
			id := c.session
			if id == "" {
				id = "s1"
			}
			_, err := importArchive(ctx, r, content.pack(t, id), c.header)
			f, ok := fields.AsFault(err)
			want := c.want
			if want == 0 {
				want = fault.InvalidField
			}
			if !ok || f.Reason != want || f.Field != c.field {
				t.Errorf("error %v with the field %q, want %v about %q", err, f.Field, want, c.field)
			}
			if got := filesIn(t, home); got != nil {
				t.Errorf("the home has %q", got)
			}
			if sessions := r.Bridge.Store().All(); len(sessions) != 1 {
				t.Errorf("%d sessions", len(sessions))
			}
		})
	}
}

// TestImportCutOff: an archive that is cut off anywhere, that is not one, or that has a name of 300 bytes is refused as
// a fault of the caller's, and leaves nothing.
func TestImportCutOff(t *testing.T) {
	t.Parallel()
	r, home := newHome(t)
	whole := newArchived().pack(t, "s1")
	texts := [][]byte{nil, []byte("PK\x03\x04"), append(bytes.Clone(whole), 'x'), longName(t)}
	for n := 1; n < len(whole); n += 97 {
		texts = append(texts, whole[:n])
	}
	for _, text := range texts {
		_, err := importArchive(t.Context(), r, text, nil)
		if f, ok := fields.AsFault(err); !ok || f.Reason != fault.InvalidField || f.Field != "chunk" {
			t.Errorf("%d bytes: %v with the field %q", len(text), err, f.Field)
		}
	}
	if got := filesIn(t, home); got != nil || len(r.Bridge.Store().All()) != 0 {
		t.Errorf("the home has %q", got)
	}
}

// longName makes an archive with a name of 300 bytes, which Writer refuses.
func longName(t *testing.T) []byte {
	t.Helper()
	sum := sha256.Sum256(nil)
	m, err := json.Marshal(archive.Manifest{Format: archive.Format, Version: archive.Version, Session: "s1",
		Parts: []archive.Part{{
			Name: "history/files/" + strings.Repeat("n", 300), SHA256: hex.EncodeToString(sum[:]),
		}}})
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	zipped := gzip.NewWriter(&out)
	w := tar.NewWriter(zipped)
	err = w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: "manifest.json", Size: int64(len(m))})
	if err == nil {
		_, err = w.Write(m)
	}
	if err = errors.Join(err, w.Close(), zipped.Close()); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// bigArchive is an archive with events of about that many bytes.
func bigArchive(t *testing.T, size int) []byte {
	t.Helper()
	a := newArchived()
	a["journal.jsonl"] += strings.Replace(importedLine, `"data":{}`, `"data":{"content":"`+strings.Repeat("x", size)+`"}`,
		1)
	a["journal.jsonl"] = strings.Replace(a["journal.jsonl"], "000000000002", "000000000003", 1)
	return a.pack(t, "s1")
}

// TestImportsCountForTheQuota: an import above the tenant's journal_bytes is refused before it leaves a part, and what
// was imported counts, in memory and evicted.
func TestImportsCountForTheQuota(t *testing.T) {
	t.Parallel()
	home := t.TempDir()
	directory, err := store.Open(store.Config{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = directory.Close() })
	r := bridgetest.New(t, fakecli.Script{}, func(c *bridgetest.Options) {
		c.Profile.Home, c.Directory = home, directory
		c.Limits = func() quota.Limits { return quota.Limits{JournalBytes: 1_000_000} }
	})
	text := bigArchive(t, 300_000)
	imports := func(id string, text []byte) error {
		_, err := importArchive(t.Context(), r, text, &bridgev1.ImportSessionHeader{SessionId: id})
		return err
	}
	refused := func(when string, err error, files int) {
		t.Helper()
		f, ok := fields.AsFault(err)
		if !ok || f.Reason != fault.LimitExceeded || f.Metadata["limit"] != "journal_bytes" {
			t.Errorf("%s: %v", when, err)
		}
		if got := filesIn(t, home); len(got) != files {
			t.Errorf("%s: the home has %q", when, got)
		}
	}
	for _, id := range []string{"one", "two", "three"} {
		if err := imports(id, text); err != nil {
			t.Fatal(err)
		}
	}
	refused("a fourth", imports("four", text), 9)
	small := newArchived().pack(t, "s1")
	for i := range sessions.MaxDisconnected - 2 {
		if err := imports(fmt.Sprint("s", i), small); err != nil {
			t.Fatal(err)
		}
	}
	bridgetest.Eventually(t, "the first import to be out of memory", func() bool { return r.Store().Get("one") == nil })
	refused("a fourth when the first is evicted", imports("four", text), 3*(sessions.MaxDisconnected+1))
	if n := r.Uses()[""].JournalBytes; n < 900_000 || n > 1_000_000 {
		t.Errorf("the imports use %d bytes", n)
	}
	if err := r.Store().RemoveSaved("one"); err != nil {
		t.Fatal(err)
	}
	if err := imports("four", text); err != nil {
		t.Errorf("after a deletion: %v", err)
	}
}

// TestImportOverrides: a caller imports an archive without a configuration that it may not set.
func TestImportOverrides(t *testing.T) {
	t.Parallel()
	r, _ := newHome(t)
	content := newArchived()
	content["session.json"] = `{"create":{"config":{"workingDirectory":"/etc"},"providerRef":"x"},` +
		`"missingSecrets":["env"]}`
	ctx := caller.WithRequestCheck(t.Context(), func(_ context.Context, m proto.Message) error {
		if m.(*bridgev1.CreateSessionRequest).GetConfig() != nil {
			return errors.New("the server has checked the header already")
		}
		return nil
	})
	out, err := importArchive(ctx, r, content.pack(t, "s1"), &bridgev1.ImportSessionHeader{
		SessionId: "s2", Config: &cliv1.SessionConfig{WorkingDirectory: proto.String("/tmp")},
	})
	if err != nil {
		t.Fatal(err)
	}
	if s := out.GetSession(); s.GetSessionId() != "s2" || out.GetOriginSessionId() != "s1" ||
		s.GetContext().GetWorkingDirectory() != "/tmp" || out.GetMissingSecrets() != nil {
		t.Errorf("imported %v", out)
	}
}

// TestExportLinks: an export follows no link of the agent and reads no pipe.
func TestExportLinks(t *testing.T) {
	t.Parallel()
	r, home := newHome(t)
	r.Create("s1")
	folder := filepath.Join(home, "session-state", "s1", "files")
	secret := filepath.Join(t.TempDir(), "secret")
	err := errors.Join(os.MkdirAll(folder, 0o700), os.WriteFile(secret, []byte("planted"), 0o600),
		os.WriteFile(filepath.Join(folder, "mine"), []byte("text"), 0o600),
		os.Symlink(secret, filepath.Join(folder, "link")))
	if err != nil {
		t.Fatal(err)
	}
	var text bytes.Buffer
	export := func() error {
		return r.Transfers.ExportSession(t.Context(), &bridgev1.ExportSessionRequest{SessionId: "s1"},
			func(m *bridgev1.ExportSessionResponse) error {
				_, err := text.Write(m.GetChunk())
				return err
			})
	}
	if err := export(); err != nil {
		t.Fatal(err)
	}
	var names []string
	limits := archive.Limits{Bytes: 1 << 20, Parts: 100, Depth: 8}
	if _, err := archive.Read(t.Context(), &text, limits, nil, func(p archive.Part, _ io.Reader) error {
		names = append(names, p.Name)
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if want := []string{"session.json", "journal.jsonl", "history/files/mine"}; !slices.Equal(names, want) {
		t.Errorf("exported %q, want %q", names, want)
	}
	err = errors.Join(os.RemoveAll(filepath.Dir(folder)), os.Symlink(t.TempDir(), filepath.Dir(folder)))
	if err != nil {
		t.Fatal(err)
	}
	if err := export(); fault.ReasonOf(err) != fault.SessionUnavailable {
		t.Errorf("the folder is a link: %v", err)
	}
}

// TestExportIsVerified: what a server exports is whole for a program that knows the format's page only.
func TestExportIsVerified(t *testing.T) {
	t.Parallel()
	r, home := newHome(t)
	r.Create("s1")
	watching := r.Subscribe(&bridgev1.SubscribeRequest{Sessions: bridgetest.Cursors("s1")})
	watching.Until("<caught_up>")
	for kind := range journal.KeptTypes {
		r.FakeCLI().Emit("s1", fakecli.Event{Type: kind, Data: json.RawMessage(`{}`), Ephemeral: true})
	}
	r.FakeCLI().Emit("s1", fakecli.Event{Type: "session.background_tasks_changed", Data: json.RawMessage(`{}`), Ephemeral: true})
	r.FakeCLI().Emit("s1", fakecli.Event{Type: "session.info", Data: json.RawMessage(`{"message":"<last>"}`)})
	watching.Until("session.info")
	for name, text := range map[string]string{
		"events.jsonl": importedStart, "plan.md": "# Plan", "files/a b.txt": "text", "checkpoints/1/ä.md": "", "session.db": "x",
	} {
		file := filepath.Join(home, "session-state", "s1", name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o700), os.WriteFile(file, []byte(text), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	var text bytes.Buffer
	var header *bridgev1.ExportSessionHeader
	err := r.Transfers.ExportSession(t.Context(), &bridgev1.ExportSessionRequest{SessionId: "s1"},
		func(m *bridgev1.ExportSessionResponse) error {
			if m.GetHeader() != nil {
				header = m.GetHeader()
			}
			_, err := text.Write(m.GetChunk())
			return err
		})
	file := filepath.Join(t.TempDir(), "s1.tar.gz")
	if err := errors.Join(err, os.WriteFile(file, text.Bytes(), 0o600)); err != nil {
		t.Fatal(err)
	}
	report, err := fsck.Check(t.Context(), file)
	if err != nil || report.Damage.Total+report.Notes.Total > 0 {
		t.Fatalf("%+v, %v", report, err)
	}
	if s := report.Sessions[0]; s.Key != "s1" || s.Events <= len(journal.KeptTypes) || s.Epoch != header.GetPosition().GetEpoch() ||
		s.Last != header.GetPosition().GetSeq() || !s.Closed || uint64(s.Bytes) != uint64(header.GetSizeBytes()) {
		t.Errorf("%+v, exported %v", s, header)
	}
}

// TestTransferRights: only owners of the session's tenant carry it, and only a few at a time.
func TestTransferRights(t *testing.T) {
	t.Parallel()
	r, _ := newHome(t)
	r.Create("s1")
	export := func(c caller.Caller, emit func(*bridgev1.ExportSessionResponse) error) error {
		ctx := caller.With(t.Context(), c)
		return r.Transfers.ExportSession(ctx, &bridgev1.ExportSessionRequest{SessionId: "s1"}, emit)
	}
	discard := func(*bridgev1.ExportSessionResponse) error { return nil }
	if err := export(caller.Caller{Role: caller.Participant}, discard); fault.ReasonOf(err) != fault.Forbidden {
		t.Errorf("a participant exports: %v", err)
	}
	stranger := caller.Caller{Tenant: "acme", Role: caller.Owner}
	if err := export(stranger, discard); fault.ReasonOf(err) != fault.SessionNotFound {
		t.Errorf("another tenant exports: %v", err)
	}
	ctx := caller.With(t.Context(), caller.Caller{Role: caller.Participant})
	if _, err := importArchive(ctx, r, nil, nil); fault.ReasonOf(err) != fault.Forbidden {
		t.Errorf("a participant imports: %v", err)
	}
	owner := caller.Caller{Role: caller.Owner}
	var nested func(depth int) error
	nested = func(depth int) error {
		return export(owner, func(m *bridgev1.ExportSessionResponse) error {
			if m.GetHeader() == nil {
				return nil
			}
			return nested(depth + 1)
		})
	}
	if err := nested(0); fault.ReasonOf(err) != fault.LimitExceeded {
		t.Errorf("exports without end: %v", err)
	}
	if err := export(owner, discard); err != nil {
		t.Errorf("an export after them: %v", err)
	}
}
