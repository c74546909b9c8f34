package cluster

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/copilot-grpc/copilot-grpc/internal/cluster/natsblob"
	"github.com/copilot-grpc/copilot-grpc/internal/cluster/natsstore"
	"github.com/copilot-grpc/copilot-grpc/internal/cluster/natstest"
)

// openStore opens a storage of a server.
func openStore(t testing.TB, server *natstest.Server) *natsstore.Store {
	t.Helper()
	s, err := natsstore.Open(t.Context(), natsstore.Config{Cluster: "test", Unsafe: true, InProcess: server})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

// home has the folders of the sessions of one node. out receives its log.
func home(t testing.TB, blobs blobs, out *bytes.Buffer) (f *Folders, dir string) {
	t.Helper()
	dir = t.TempDir()
	place := func(key string, _ json.RawMessage) string { return filepath.Join(dir, "state", key) }
	return NewFolders(blobs, place, slog.New(slog.NewTextHandler(out, nil))), dir
}

// fill writes files into a folder that has no others.
func fill(t testing.TB, folder string, files map[string]string) {
	t.Helper()
	if err := os.RemoveAll(folder); err != nil {
		t.Fatal(err)
	}
	for name, content := range files {
		path := filepath.Join(folder, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// contents returns the files of a folder.
func contents(t testing.TB, folder string) map[string]string {
	t.Helper()
	files := map[string]string{}
	err := fs.WalkDir(os.DirFS(folder), ".", func(name string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		text, err := os.ReadFile(filepath.Join(folder, filepath.FromSlash(name)))
		files[name] = string(text)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// same reports whether a folder has these files and no others.
func same(t testing.TB, folder string, want map[string]string) {
	t.Helper()
	got, _ := json.Marshal(contents(t, folder))
	if expect, _ := json.Marshal(want); !bytes.Equal(got, expect) {
		t.Errorf("the folder has %s, want %s", got, expect)
	}
}

// One node saves a folder, another restores it. A folder that the other has stays only if it continues the saved one.
func TestFolderMoves(t *testing.T) {
	t.Parallel()
	blobs := openStore(t, natstest.Start(t)).Blobs()
	var out bytes.Buffer
	from, there := home(t, blobs, &out)
	saved := map[string]string{recordFile: "1\n2\n", "checkpoints/one/a.md": "text", "workspace.yaml": "w"}
	fill(t, filepath.Join(there, "state", "s"), saved)
	from.changed("s", nil, 1)
	from.Flush()
	continued := map[string]string{recordFile: "1\n2\n3\n", "new": "n"}
	for name, test := range map[string]struct{ have, want map[string]string }{
		"nothing":         {nil, saved},
		"an older record": {map[string]string{recordFile: "1\n", "gone": "x"}, saved},
		"another record":  {map[string]string{recordFile: "1\n3\n4\n", "workspace.yaml": "w"}, saved},
		"no record":       {map[string]string{"workspace.yaml": "other"}, saved},
		"the same":        {saved, saved},
		"a continued one": {continued, continued},
	} {
		t.Run(name, func(t *testing.T) {
			to, dir := home(t, blobs, &out)
			folder := filepath.Join(dir, "state", "s")
			fill(t, folder, test.have)
			if got, err := to.restore(t.Context(), "s", nil, 2); err != nil || got != folder {
				t.Fatal(got, err)
			}
			same(t, folder, test.want)
			if left, _ := filepath.Glob(filepath.Join(dir, "state", ".*")); len(left) > 0 {
				t.Errorf("left over are %q", left)
			}
		})
	}
	if out.Len() > 0 {
		t.Errorf("logged was %s", &out)
	}
}

// link is the event with which a file of a record of session s continues another one.
func link(previous string) string {
	return `{"type":"session.journal_link","data":{"previousFile":"` + previous + `","sessionId":"s","version":1}}` + "\n"
}

// A record of several files moves as a whole. A folder whose CLI has begun another file since it was saved continues
// the saved one; a folder that lacks a file, or has another one, does not.
func TestFolderWithSeveralFilesMoves(t *testing.T) {
	t.Parallel()
	const first, second = `{"type":"a"}` + "\n", `{"type":"b"}` + "\n"
	saved := map[string]string{"events.1.jsonl": first + second, recordFile: link("events.1.jsonl") + second}
	with := func(change map[string]string) map[string]string {
		files := map[string]string{}
		for _, from := range []map[string]string{saved, change} {
			for name, text := range from {
				if files[name] = text; text == "" {
					delete(files, name)
				}
			}
		}
		return files
	}
	again := with(map[string]string{"events.2.jsonl": link("events.1.jsonl") + second + first,
		recordFile: link("events.2.jsonl") + first})
	longer := with(map[string]string{recordFile: link("events.1.jsonl") + second + first})
	blobs := openStore(t, natstest.Start(t)).Blobs()
	var out bytes.Buffer
	from, there := home(t, blobs, &out)
	fill(t, filepath.Join(there, "state", "s"), saved)
	from.changed("s", nil, 1)
	from.Flush()
	for name, test := range map[string]struct{ have, want map[string]string }{
		"nothing":               {nil, saved},
		"the same":              {saved, saved},
		"continued":             {longer, longer},
		"continued in another":  {again, again},
		"lacks a file":          {with(map[string]string{"events.1.jsonl": ""}), saved},
		"has another file":      {with(map[string]string{"events.1.jsonl": first}), saved},
		"lacks a file, another": {with(map[string]string{"events.1.jsonl": "", recordFile: again[recordFile]}), saved},
		"one file, older":       {map[string]string{recordFile: first + second}, saved},
	} {
		to, dir := home(t, blobs, &out)
		folder := filepath.Join(dir, "state", "s")
		fill(t, folder, test.have)
		if _, err := to.restore(t.Context(), "s", nil, 2); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		t.Log(name)
		same(t, folder, test.want)
	}
	if out.Len() > 0 {
		t.Errorf("logged was %s", &out)
	}
	// A record whose earlier file is elsewhere would be saved in part: it is not saved, and the log says why.
	fill(t, filepath.Join(there, "state", "s"), map[string]string{recordFile: link("../t/events.1.jsonl")})
	from.changed("s", nil, 2)
	from.Flush()
	if kept, err := blobs.List(t.Context(), "s"); err != nil || len(kept) != 2 ||
		!strings.Contains(out.String(), "not the name of an earlier file") {
		t.Errorf("saved is %+v, %v; logged was %s", kept, err, &out)
	}
}

// A folder that could not be saved is saved later; that of a former owner never.
func TestFolderIsSavedAgain(t *testing.T) {
	t.Parallel()
	blobs := openStore(t, natstest.Start(t)).Blobs()
	var out bytes.Buffer
	f, dir := home(t, blobs, &out)
	// A file in the place of a folder cannot be opened as one.
	path := filepath.Join(dir, "state", "s")
	fill(t, filepath.Dir(path), map[string]string{"s": ""})
	f.changed("s", nil, 2)
	f.Flush()
	if !strings.Contains(out.String(), "was not saved") {
		t.Errorf("logged was %q", out.String())
	}
	fill(t, path, map[string]string{recordFile: "1\n"})
	f.Flush()
	if saved, err := blobs.List(t.Context(), "s"); err != nil || len(saved) != 1 {
		t.Fatalf("saved were %+v, %v", saved, err)
	}
	fill(t, path, map[string]string{recordFile: "1\n2\n"})
	f.changed("s", nil, 1) // by an earlier owner
	f.Flush()
	if len(f.dirty) > 0 {
		t.Error("the folder of a former owner is saved again and again")
	}
	if saved, err := blobs.List(t.Context(), "s"); err != nil || len(saved) != 1 || saved[0].Size != 2 {
		t.Errorf("a former owner has saved %+v, %v", saved, err)
	}
}

// An owner that was frozen, and has lost the session, does not save its folder any more, also if the next owner has not
// saved one: what it had not saved is not part of the session, as in its log.
func TestFolderOfAFrozenOwner(t *testing.T) {
	t.Parallel()
	for name, saved := range map[string]map[string]string{"saved before": {recordFile: "1\n"}, "never saved": nil} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			blobs := openStore(t, natstest.Start(t)).Blobs()
			var out bytes.Buffer
			frozen, there := home(t, blobs, &out)
			path := filepath.Join(there, "state", "s")
			if saved != nil {
				fill(t, path, saved)
				frozen.changed("s", nil, 1)
				frozen.Flush()
			}
			next, dir := home(t, blobs, &out)
			if _, err := next.restore(t.Context(), "s", nil, 2); err != nil {
				t.Fatal(err)
			}
			fill(t, path, map[string]string{recordFile: "1\n2\n"})
			frozen.changed("s", nil, 1)
			frozen.Flush()
			last, elsewhere := home(t, blobs, &out)
			if _, err := last.restore(t.Context(), "s", nil, 3); err != nil {
				t.Fatal(err)
			}
			if saved != nil {
				same(t, filepath.Join(elsewhere, "state", "s"), saved)
				same(t, filepath.Join(dir, "state", "s"), saved)
			} else if _, err := os.Stat(filepath.Join(elsewhere, "state", "s")); err == nil {
				t.Error("the folder of the frozen owner was saved")
			}
		})
	}
}

// evilBlobs have a file outside of the folder.
type evilBlobs struct{ blobs }

// Get implements blobs.
func (b evilBlobs) Get(
	ctx context.Context, session string, write func(natsblob.File, io.Reader) error,
) error {
	return b.blobs.Get(ctx, session, func(f natsblob.File, content io.Reader) error {
		f.Name = "../../outside"
		return write(f, content)
	})
}

// A snapshot cannot write outside of the folder, and leaves what was there if it cannot be restored.
func TestRestoreStaysInside(t *testing.T) {
	t.Parallel()
	blobs := openStore(t, natstest.Start(t)).Blobs()
	err := blobs.Put(t.Context(), "s", 1, fstest.MapFS{recordFile: {Data: []byte("1\n")}})
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	f, dir := home(t, evilBlobs{blobs}, &out)
	folder := filepath.Join(dir, "state", "s")
	fill(t, folder, map[string]string{"b": "b"})
	if _, err := f.restore(t.Context(), "s", nil, 2); err == nil {
		t.Error("a file outside of the folder was accepted")
	}
	same(t, dir, map[string]string{"state/s/b": "b"})
}
