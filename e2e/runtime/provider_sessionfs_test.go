package runtime

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	copilot "github.com/copilot-grpc/copilot-grpc/clients/go"
	"github.com/copilot-grpc/copilot-grpc/e2e/harness"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
	cliv1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/cli/v1"
)

// database answers every query alike, and remembers them.
type database struct {
	mu      sync.Mutex
	queries []string
}

func (d *database) Exists(context.Context) (bool, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.queries) > 0, nil
}

func (d *database) Query(
	_ context.Context, r *cliv1.CallbackSessionFsServiceSqliteQueryRequest,
) (*cliv1.CallbackSessionFsServiceSqliteQueryResponse, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.queries = append(d.queries, r.GetQuery())
	out := &cliv1.CallbackSessionFsServiceSqliteQueryResponse{RowsJson: "[]"}
	if r.GetQueryType() == cliv1.SessionFsSqliteQueryType_SESSION_FS_SQLITE_QUERY_TYPE_QUERY {
		out.Columns, out.RowsJson = []string{"answer"}, `[{"answer":42}]`
	}
	return out, nil
}

func (d *database) Transaction(
	context.Context, *cliv1.CallbackSessionFsServiceSqliteTransactionRequest,
) (*cliv1.CallbackSessionFsServiceSqliteTransactionResponse, error) {
	return nil, errors.New("no transactions")
}

func (d *database) asked() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return strings.Join(d.queries, "\n")
}

// fragile is a file system that fails on request.
type fragile struct {
	copilot.FileSystem
	mu   sync.Mutex
	how  func(name string) error
	hits int
}

func (f *fragile) fail(how func(string) error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.how = how
}

func (f *fragile) AppendFile(name string, data []byte, mode fs.FileMode) error {
	f.mu.Lock()
	how := f.how
	f.hits++
	f.mu.Unlock()
	if how != nil {
		if err := how(name); err != nil {
			return err
		}
	}
	return f.FileSystem.AppendFile(name, data, mode)
}

// files are a session's files in a directory of the test.
func files(st *harness.Scripted) (*copilot.DirFS, string) {
	st.T.Helper()
	dir := harness.RealDir(st.T)
	files, err := copilot.OpenDirFS(dir)
	if err != nil {
		st.T.Fatal(err)
	}
	st.T.Cleanup(func() { _ = files.Close() })
	return files, dir
}

// config without a working directory: it is one of the session's own file system.
func elsewhere(st *harness.Scripted) *cliv1.SessionConfig {
	config := st.Config()
	config.WorkingDirectory = nil
	return config
}

// wantNoState checks that a home has nothing of a session.
func wantNoState(t *testing.T, home, id string) {
	t.Helper()
	if _, err := os.Stat(filepath.Join(home, "session-state", id)); err == nil {
		t.Errorf("the CLI's home has the session %s", id)
	}
}

// TestSessionFileSystem has a whole session whose files are this program's: created, asked
// a database, ended, resumed in another process.
func TestSessionFileSystem(t *testing.T) {
	t.Parallel()
	st := harness.NewOwnScripted(t, harness.HostConfig{},
		harness.OnUser("compute",
			harness.Call("sql", map[string]any{"query": "SELECT 42 AS answer", "description": "a test"})),
		harness.OnResult("sql", harness.Say("{{tool_result}}")))
	files, dir := files(st)
	db := &database{}
	opts := copilot.SessionOptions{Config: elsewhere(st), SessionFS: &copilot.SessionFS{Files: files, SQLite: db},
		OnPermission: copilot.ApproveAll}
	s := st.Create(opts)
	if list := st.Ready(); len(list) != 2 {
		t.Errorf("the runtimes are %v, want one of the session's own", list)
	}
	st.Say(s, "remember me")
	if out := st.Say(s, "compute"); !strings.Contains(out.Text(), "42") {
		t.Errorf("the agent said %q", out.Text())
	}
	if queries := db.asked(); !strings.Contains(queries, "SELECT 42 AS answer") {
		t.Errorf("the database was asked %q", queries)
	}
	if err := s.Disconnect(st.Ctx); err != nil {
		t.Fatal(err)
	}
	wantEvents(t, filepath.Join(dir, "session-state", "events.jsonl"), "session.start", "remember me",
		"session.shutdown")
	wantNoState(t, st.Host.Home, s.ID())

	again, err := st.Dial().ResumeSession(st.Ctx, s.ID(), opts)
	if err != nil {
		t.Fatal(err)
	}
	st.Say(again, "what do you know?")
	if texts := strings.Join(harness.UserTexts(st), " "); !strings.Contains(texts, "remember me") {
		t.Errorf("the model was told %q", texts)
	}
	// The separate process dies: everything is still there.
	list := st.Ready()
	frames := st.Callbacks(s.ID())
	for _, rt := range list {
		if rt.GetProfileId() != list[0].GetProfileId() || rt.GetLoadedSessions() > 0 {
			kill(t, rt)
		}
	}
	frames.Restarted()
	st.Say(again, "and now?")
	if texts := strings.Join(harness.UserTexts(st), " "); !strings.Contains(texts, "what do you know?") {
		t.Errorf("after the kill the model was told %q", texts)
	}
	wantNoState(t, st.Host.Home, s.ID())
	wantDeleted(t, st, again)
	wantEvents(t, filepath.Join(dir, "session-state", "events.jsonl"), "and now?") // the caller keeps its files
}

// wantDeleted deletes a session, which is then unknown.
func wantDeleted(t *testing.T, st *harness.Scripted, s *copilot.Session) {
	t.Helper()
	if err := s.Delete(st.Ctx); err != nil {
		t.Fatalf("delete: %v", err)
	}
	_, err := st.Client.Sessions().GetSession(st.Ctx, &bridgev1.GetSessionRequest{SessionId: s.ID()})
	harness.WantReason(t, err, bridgev1.ErrorReason_ERROR_REASON_SESSION_NOT_FOUND)
}

func wantEvents(t *testing.T, path string, parts ...string) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, part := range parts {
		if !strings.Contains(string(text), part) {
			t.Errorf("%s lacks %q: %d bytes", path, part, len(text))
		}
	}
}

// TestSessionFileSystemsShareAProcess where their key says so, each with its own files.
func TestSessionFileSystemsShareAProcess(t *testing.T) {
	t.Parallel()
	st := harness.NewOwnScripted(t, harness.HostConfig{})
	var dirs []string
	for i := range 2 {
		files, dir := files(st)
		dirs = append(dirs, dir)
		s := st.Create(copilot.SessionOptions{
			Config: elsewhere(st), SessionFS: &copilot.SessionFS{Files: files, Key: "shared"},
			Lifetime: copilot.LifetimeEndWithLastParticipant,
		})
		st.Say(s, fmt.Sprintf("number %d", i))
		if err := s.Close(); err != nil { // and with that the session, which is written yet
			t.Fatal(err)
		}
	}
	if list := st.Ready(); len(list) != 2 {
		t.Errorf("the runtimes are %v, want one for both sessions", list)
	}
	for i, dir := range dirs {
		wantEvents(t, filepath.Join(dir, "session-state", "events.jsonl"), fmt.Sprintf("number %d", i),
			"session.shutdown")
	}
}

// TestSessionFileSystemFails: the turn fails, soon and with a type, whether the files are
// refused, late or gone.
func TestSessionFileSystemFails(t *testing.T) {
	t.Parallel()
	never := make(chan struct{})
	t.Cleanup(func() { close(never) })
	for name, breaks := range map[string]func(*harness.Scripted, *fragile, *copilot.Session){
		"declined": func(_ *harness.Scripted, f *fragile, _ *copilot.Session) {
			f.fail(func(string) error { return errors.New("the disk is full") })
		},
		"unanswered": func(_ *harness.Scripted, f *fragile, _ *copilot.Session) {
			f.fail(func(string) error { <-never; return errors.New("too late") })
		},
		"participant gone": func(st *harness.Scripted, _ *fragile, s *copilot.Session) {
			if err := s.Close(); err != nil {
				st.T.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			st := harness.NewOwnScripted(t, harness.HostConfig{})
			files, _ := files(st)
			breaking := &fragile{FileSystem: files}
			s := st.Create(copilot.SessionOptions{
				Config: elsewhere(st), SessionFS: &copilot.SessionFS{Files: breaking}, CallbackTimeout: time.Second,
			})
			st.Say(s, "all is well")
			breaks(st, breaking, s)
			out, err := st.Client.Session(s.ID()).SendAndWait(st.Ctx, "and now?")
			if err != nil {
				t.Fatal(err)
			}
			if out.Status() != copilot.TurnFailed ||
				out.Error().GetErrorType() != "persistence" {
				t.Errorf("the turn ended %v", out)
			}
		})
	}
}

// TestSessionFileSystemGone: a session is not loaded while no participant has its files.
func TestSessionFileSystemGone(t *testing.T) {
	t.Parallel()
	st := harness.NewOwnScripted(t, harness.HostConfig{})
	files, _ := files(st)
	gone := bridgev1.ErrorReason_ERROR_REASON_HANDLER_MISSING
	_, err := st.Client.CreateSession(st.Ctx, copilot.SessionOptions{RuntimeProfile: &bridgev1.RuntimeProfile{
		SessionFs: &bridgev1.SessionFileSystem{InitialDirectory: "/", StatePath: "/s"},
	}})
	harness.WantError(t, err, codes.FailedPrecondition, gone)

	opts := copilot.SessionOptions{Config: elsewhere(st), SessionFS: &copilot.SessionFS{Files: files}}
	s := st.Create(opts)
	st.Say(s, "remember me")
	if err := s.Disconnect(st.Ctx); err != nil {
		t.Fatal(err)
	}
	_, err = st.Dial().ResumeSession(st.Ctx, s.ID(), copilot.SessionOptions{Config: elsewhere(st)})
	harness.WantError(t, err, codes.FailedPrecondition, gone)
	st.Say(st.Reopen(s.ID(), opts), "here I am")
	if texts := strings.Join(harness.UserTexts(st), " "); !strings.Contains(texts, "remember me") {
		t.Errorf("the model was told %q", texts)
	}
}

// TestSessionFileSystemOfTwo: two participants have the files; one abstains, one gives
// answers that do not fit, and one leaves.
func TestSessionFileSystemOfTwo(t *testing.T) {
	t.Parallel()
	st := harness.NewOwnScripted(t, harness.HostConfig{})
	files, dir := files(st)
	s := st.Create(copilot.SessionOptions{Config: elsewhere(st), SessionFS: &copilot.SessionFS{Files: files}})
	other := st.Attach(harness.JoinOf(s.ID(), &bridgev1.Handlers{Kinds: []bridgev1.CallbackKind{
		bridgev1.CallbackKind_CALLBACK_KIND_FS_APPEND_FILE,
	}}))
	wait := st.GoSay(s, "for both")
	cb := other.Asked(bridgev1.CallbackKind_CALLBACK_KIND_FS_APPEND_FILE)
	if cb.GetKind() != bridgev1.CallbackKind_CALLBACK_KIND_FS_APPEND_FILE || cb.GetFsAppendFile().GetPath() == "" ||
		len(cb.GetParticipantIds()) != 2 {
		t.Errorf("the other was asked %v", cb)
	}
	if over := other.Resolved(cb.GetCallbackId()); over.GetOutcome() != bridgev1.CallbackOutcome_CALLBACK_OUTCOME_ANSWERED || over.GetParticipantId() != s.ParticipantID() {
		t.Errorf("it ended %v", over)
	}
	late := other.Answer(cb.GetCallbackId(), &bridgev1.Answer{Answer: &bridgev1.Answer_FsAppendFile{
		FsAppendFile: &cliv1.CallbackSessionFsServiceAppendFileResponse{},
	}})
	if late.Failed.GetReason() != bridgev1.ErrorReason_ERROR_REASON_CALLBACK_RESOLVED {
		t.Errorf("the late answer came to %v", late)
	}
	wait()
	other.Send(&bridgev1.AttachRequest{Frame: &bridgev1.AttachRequest_Leave{Leave: &bridgev1.AttachLeave{}}})
	st.Say(s, "for one")
	if err := s.Disconnect(st.Ctx); err != nil {
		t.Fatal(err)
	}
	wantEvents(t, filepath.Join(dir, "session-state", "events.jsonl"), "for both", "for one")
}

// TestSessionFileSystemByHand is the same without a client library: the answers are frames,
// the first of them before the session is there. Wrong ones are refused, and a right one
// still counts.
func TestSessionFileSystemByHand(t *testing.T) {
	t.Parallel()
	st := harness.NewOwnScripted(t, harness.HostConfig{})
	stream, err := st.Client.Callbacks().Attach(st.Ctx)
	if err != nil {
		t.Fatal(err)
	}
	send := func(frame *bridgev1.AttachRequest) {
		if err := stream.Send(frame); err != nil {
			t.Fatal(err)
		}
	}
	answer := func(id string, answer *bridgev1.Answer) {
		send(&bridgev1.AttachRequest{Frame: &bridgev1.AttachRequest_Answer{Answer: &bridgev1.CallbackAnswer{CallbackId: id, Answer: answer}}})
	}
	send(&bridgev1.AttachRequest{Frame: &bridgev1.AttachRequest_Start{Start: &bridgev1.AttachStart{
		Session: &bridgev1.AttachStart_Create{Create: &bridgev1.CreateSessionRequest{
			Config: elsewhere(st), RuntimeProfile: &bridgev1.RuntimeProfile{
				SessionFs: &bridgev1.SessionFileSystem{InitialDirectory: "/", StatePath: "/s"},
			},
		}},
		Handlers: &bridgev1.Handlers{Kinds: []bridgev1.CallbackKind{
			bridgev1.CallbackKind_CALLBACK_KIND_FS_READ_FILE, bridgev1.CallbackKind_CALLBACK_KIND_FS_WRITE_FILE,
		}},
	}}})
	wrong := map[string]int{}
	for opening := false; ; {
		frame, err := stream.Recv()
		if err != nil {
			// Its handlers are not enough for a session: the CLI says so.
			harness.WantReason(t, copilot.FromError(err), bridgev1.ErrorReason_ERROR_REASON_SESSION_REFUSED)
			break
		}
		switch {
		case frame.GetOpening() != nil:
			opening = true
			if frame.GetOpening().GetParticipantId() == "" || frame.GetOpening().GetSessionId() == "" ||
				frame.GetOpening().GetParticipantToken() == "" {
				t.Errorf("it begins with %v", frame)
			}
		case !opening:
			t.Fatalf("the first frame is %v", frame)
		case frame.GetStarted() != nil:
			t.Fatal("a session without directories was made")
		case frame.GetFailed() != nil:
			if frame.GetFailed().GetFailure().GetReason() != bridgev1.ErrorReason_ERROR_REASON_ANSWER_INVALID {
				t.Errorf("the wrong answer came to %v", frame)
			}
			answer(frame.GetFailed().GetCallbackId(), &bridgev1.Answer{Answer: &bridgev1.Answer_FsReadFile{
				FsReadFile: &cliv1.CallbackSessionFsServiceReadFileResponse{Error: &cliv1.SessionFsError{
					Code: cliv1.SessionFsErrorCode_SESSION_FS_ERROR_CODE_ENOENT, Message: proto.String("no such file"),
				}},
			}})
		case frame.GetStream().GetCallbackRequested().GetOffered():
			cb := frame.GetStream().GetCallbackRequested().GetCallback()
			if cb.GetFsReadFile() != nil && wrong[cb.GetCallbackId()] == 0 {
				wrong[cb.GetCallbackId()]++
				answer(cb.GetCallbackId(), &bridgev1.Answer{Answer: &bridgev1.Answer_FsWriteFile{
					FsWriteFile: &cliv1.CallbackSessionFsServiceWriteFileResponse{},
				}})
			}
		}
	}
	if len(wrong) == 0 {
		t.Error("nothing was asked before the session was there")
	}
}
