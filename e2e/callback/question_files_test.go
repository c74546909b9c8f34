package callback

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	copilot "github.com/copilot-grpc/copilot-grpc/clients/go"
	"github.com/copilot-grpc/copilot-grpc/e2e/harness"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
	cliv1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/cli/v1"
	"github.com/copilot-grpc/copilot-grpc/internal/testing/fakecli"
)

// noSuchFile is an answer of a file system that says no.
var noSuchFile = &cliv1.SessionFsError{Code: cliv1.SessionFsErrorCode_SESSION_FS_ERROR_CODE_ENOENT,
	Message: proto.String("no such file")}

// onFile is a question about a file, which the fake CLI asks in the turn that names it. The
// real one asks most of them in every turn of a session with a file system; here each is
// put in all ways.
func onFile(
	kind bridgev1.CallbackKind, request string, accept proto.Message, accepted string, decline proto.Message,
) question {
	return question{
		kind: kind, request: request, accept: accept, accepted: "told: " + accepted, decline: decline,
		declined: "no such file",
		ask: func(st *harness.Scripted, s *copilot.Session) func() string {
			wait := st.GoTurn(s, kind.String()+"!")
			return func() string { return wait().Text() }
		},
		silent: "error: sessionFs.",
	}
}

// fileQuestions are what the CLI asks about the files of a session.
var fileQuestions = map[string]question{
	"readFile": onFile(bridgev1.CallbackKind_CALLBACK_KIND_FS_READ_FILE, `fs_read_file:{`,
		&cliv1.CallbackSessionFsServiceReadFileResponse{Content: "text"}, `{"content":"text"}`,
		&cliv1.CallbackSessionFsServiceReadFileResponse{Error: noSuchFile}),
	"readFileBytes": onFile(bridgev1.CallbackKind_CALLBACK_KIND_FS_READ_FILE_BYTES, `fs_read_file_bytes:{`,
		&cliv1.CallbackSessionFsServiceReadFileBytesResponse{Content: "dGV4dA=="}, `{"content":"dGV4dA=="}`,
		&cliv1.CallbackSessionFsServiceReadFileBytesResponse{Error: noSuchFile}),
	"writeFile": onFile(bridgev1.CallbackKind_CALLBACK_KIND_FS_WRITE_FILE, `content:"some text"`,
		&cliv1.CallbackSessionFsServiceWriteFileResponse{}, `null`,
		&cliv1.CallbackSessionFsServiceWriteFileResponse{Value: noSuchFile}),
	"writeFileBytes": onFile(bridgev1.CallbackKind_CALLBACK_KIND_FS_WRITE_FILE_BYTES, `content:"some text"`,
		&cliv1.CallbackSessionFsServiceWriteFileBytesResponse{}, `null`,
		&cliv1.CallbackSessionFsServiceWriteFileBytesResponse{Value: noSuchFile}),
	"appendFile": onFile(bridgev1.CallbackKind_CALLBACK_KIND_FS_APPEND_FILE, `content:"some text"`,
		&cliv1.CallbackSessionFsServiceAppendFileResponse{}, `null`,
		&cliv1.CallbackSessionFsServiceAppendFileResponse{Value: noSuchFile}),
	"exists": onFile(bridgev1.CallbackKind_CALLBACK_KIND_FS_EXISTS, `fs_exists:{`,
		&cliv1.CallbackSessionFsServiceExistsResponse{Exists: true}, `{"exists":true}`,
		&bridgev1.AnswerError{Message: "no such file"}),
	"stat": onFile(bridgev1.CallbackKind_CALLBACK_KIND_FS_STAT, `fs_stat:{`,
		&cliv1.CallbackSessionFsServiceStatResponse{IsFile: true, Size: 4, Mtime: midnight, Birthtime: midnight},
		`{"isFile":true,"size":4,`,
		&cliv1.CallbackSessionFsServiceStatResponse{Mtime: midnight, Birthtime: midnight, Error: noSuchFile}),
	"mkdir": onFile(bridgev1.CallbackKind_CALLBACK_KIND_FS_MKDIR, `recursive:true`,
		&cliv1.CallbackSessionFsServiceMkdirResponse{}, `null`,
		&cliv1.CallbackSessionFsServiceMkdirResponse{Value: noSuchFile}),
	"readdir": onFile(bridgev1.CallbackKind_CALLBACK_KIND_FS_READDIR, `fs_readdir:{`,
		&cliv1.CallbackSessionFsServiceReaddirResponse{Entries: []string{"a", "b"}}, `{"entries":["a","b"]}`,
		&cliv1.CallbackSessionFsServiceReaddirResponse{Error: noSuchFile}),
	"readdirWithTypes": onFile(bridgev1.CallbackKind_CALLBACK_KIND_FS_READDIR_WITH_TYPES, `fs_readdir_with_types:{`,
		&cliv1.CallbackSessionFsServiceReaddirWithTypesResponse{Entries: []*cliv1.SessionFsReaddirWithTypesEntry{{
			Name:      "a",
			EntryType: cliv1.SessionFsReaddirWithTypesEntryType_SESSION_FS_READDIR_WITH_TYPES_ENTRY_TYPE_DIRECTORY,
		}}}, `{"entries":[{"name":"a","type":"directory"}]}`,
		&cliv1.CallbackSessionFsServiceReaddirWithTypesResponse{Error: noSuchFile}),
	"rm": onFile(bridgev1.CallbackKind_CALLBACK_KIND_FS_RM, `recursive:true`,
		&cliv1.CallbackSessionFsServiceRmResponse{}, `null`,
		&cliv1.CallbackSessionFsServiceRmResponse{Value: noSuchFile}),
	"rename": onFile(bridgev1.CallbackKind_CALLBACK_KIND_FS_RENAME, `src:"/a" dest:"/b"`,
		&cliv1.CallbackSessionFsServiceRenameResponse{}, `null`,
		&cliv1.CallbackSessionFsServiceRenameResponse{Value: noSuchFile}),
	"sqliteQuery": onFile(bridgev1.CallbackKind_CALLBACK_KIND_FS_SQLITE_QUERY, `query:"SELECT 1"`,
		&cliv1.CallbackSessionFsServiceSqliteQueryResponse{RowsJson: `[{"1":1}]`, Columns: []string{"1"}},
		`{"rows":[{"1":1}],"columns":["1"],"rowsAffected":0}`,
		&cliv1.CallbackSessionFsServiceSqliteQueryResponse{RowsJson: `[]`, Error: noSuchFile}),
	"sqliteTransaction": onFile(bridgev1.CallbackKind_CALLBACK_KIND_FS_SQLITE_TRANSACTION, `query:"SELECT 1"`,
		&cliv1.CallbackSessionFsServiceSqliteTransactionResponse{}, `{"results":[]}`,
		&bridgev1.AnswerError{Message: "no such file"}),
	"sqliteExists": onFile(bridgev1.CallbackKind_CALLBACK_KIND_FS_SQLITE_EXISTS, `fs_sqlite_exists:{`,
		&cliv1.CallbackSessionFsServiceSqliteExistsResponse{Exists: true}, `{"exists":true}`,
		&bridgev1.AnswerError{Message: "no such file"}),
}

var midnight = timestamppb.New(timestamppb.Now().AsTime().Truncate(1e9))

// fileParams are the parameters of each question, but for the session.
var fileParams = map[string]string{
	"writeFile": `{"path":"/a","content":"some text"}`, "writeFileBytes": `{"path":"/a","content":"some text"}`,
	"appendFile": `{"path":"/a","content":"some text","mode":384}`, "mkdir": `{"path":"/a","recursive":true}`,
	"rm": `{"path":"/a","recursive":true}`, "rename": `{"src":"/a","dest":"/b"}`,
	"sqliteQuery":       `{"query":"SELECT 1","queryType":"query"}`,
	"sqliteTransaction": `{"statements":[{"query":"SELECT 1","queryType":"query"}]}`, "sqliteExists": `{}`,
}

// filesCLI is a fake CLI that asks them, and about a file of some length.
func filesCLI(length int) harness.HostConfig {
	script := &fakecli.Script{}
	ask := func(match, method, params string) {
		script.Prompts = append(script.Prompts, fakecli.Prompt{Match: match, Turns: []fakecli.Turn{{
			Requests: []fakecli.Reverse{{Method: method, Params: []byte(params)}}, Text: "told: {{answer}}",
		}}})
	}
	for name, q := range fileQuestions {
		params := fileParams[name]
		if params == "" {
			params = `{"path":"/a"}`
		}
		ask(q.kind.String()+"!", "sessionFs."+name, params)
	}
	ask("large", "sessionFs.writeFile", fmt.Sprintf(`{"path":"/large","content":%q}`, strings.Repeat("x", length)))
	return harness.HostConfig{Fake: script}
}

func TestFileQuestions(t *testing.T) {
	t.Parallel()
	host := harness.NewOwnFixture(t, harness.Echo, filesCLI(1)).Host
	for name, q := range fileQuestions {
		t.Run(name, func(t *testing.T) { q.test(t, host) })
	}
}

// A request that is too long for a frame is read separately. Only the addressed programs learn of the questions that
// programs answer.
func TestLargeCallback(t *testing.T) {
	t.Parallel()
	const length = 6 << 20 // more than clients take in a message unless told otherwise
	st := &harness.Scripted{Fixture: harness.NewOwnFixture(t, harness.Echo, filesCLI(length))}
	s := st.Create(copilot.SessionOptions{})
	written := make(chan int, 1)
	st.Join(s.ID(), copilot.SessionOptions{Handlers: []copilot.Handler{
		copilot.Handle(func(_ context.Context,
			r *cliv1.CallbackSessionFsServiceWriteFileRequest) (*cliv1.CallbackSessionFsServiceWriteFileResponse,
			error) {
			written <- len(r.GetContent())
			return &cliv1.CallbackSessionFsServiceWriteFileResponse{}, nil
		}),
	}})
	asked := st.Attach(harness.JoinOf(s.ID(),
		&bridgev1.Handlers{Kinds: []bridgev1.CallbackKind{bridgev1.CallbackKind_CALLBACK_KIND_FS_WRITE_FILE}}))
	not := st.Attach(harness.JoinOf(s.ID(), nil))
	wait := st.GoTurn(s, "large")
	if cb := asked.Asked(bridgev1.CallbackKind_CALLBACK_KIND_FS_WRITE_FILE); cb.GetTotalBytes() < length ||
		cb.GetRequest() != nil {
		t.Errorf("asked with %d bytes of %d", proto.Size(cb), cb.GetTotalBytes())
	}
	if n := harness.Await(st, written, "the content"); n != length {
		t.Errorf("%d bytes were to be written, want %d", n, length)
	}
	if out := wait(); out.Text() != "told: null" {
		t.Errorf("the turn ended %v", out)
	}
	not.Frame("the end of the turn", func(f *bridgev1.SubscribeResponse) bool { return f.GetTurnEnded() != nil })
	not.Mu.Lock()
	defer not.Mu.Unlock()
	for _, f := range not.Frames {
		if f.GetStream().GetCallbackRequested() != nil || f.GetStream().GetCallbackResolved() != nil {
			t.Errorf("who is not asked was told %v", f)
		}
	}
}
