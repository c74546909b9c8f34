//go:build unix

package fileperm

import (
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// mode makes a file or directory with exactly these bits.
func mode(t *testing.T, path string, bits fs.FileMode, dir bool) string {
	t.Helper()
	var err error
	if dir {
		err = os.Mkdir(path, 0o700)
	} else {
		err = os.WriteFile(path, []byte("x"), 0o600)
	}
	if err == nil {
		err = os.Chmod(path, bits)
	}
	if err != nil {
		t.Fatal(err)
	}
	return path
}

func TestCheck(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		kind      Kind
		dir, file fs.FileMode
		text      string // of the one finding; "" for none
		grave     bool
	}{
		"own":                           {Secret, 0o700, 0o600, "", false},
		"readable policy":               {Trusted, 0o755, 0o644, "", false},
		"readable secret":               {Secret, 0o755, 0o644, "read by every user", false},
		"secret of the group":           {Secret, 0o755, 0o640, "read by its group", false},
		"policy of the group":           {Trusted, 0o755, 0o664, "written by its group", false},
		"open policy":                   {Trusted, 0o755, 0o646, "written by every user", true},
		"open directory":                {Trusted, 0o777, 0o644, "can replace what is in it", true},
		"open sticky directory":         {Trusted, 0o777 | fs.ModeSticky, 0o644, "", false},
		"socket":                        {Socket, 0o755, 0, "", false},
		"socket in an open directory":   {Socket, 0o777, 0, "make a socket of that name first", false},
		"socket in a sticky directory":  {Socket, 0o777 | fs.ModeSticky, 0, "make a socket of that name first", false},
		"data in a directory of others": {Private, 0o777, 0, "can replace what is in it", true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := mode(t, filepath.Join(t.TempDir(), "dir"), tc.dir, true)
			path := filepath.Join(dir, "path")
			if tc.file != 0 {
				mode(t, path, tc.file, false)
			}
			found, err := Check(path, tc.kind)
			if err != nil {
				t.Fatal(err)
			}
			switch {
			case tc.text == "" && len(found) > 0:
				t.Errorf("found %v", found)
			case tc.text != "" &&
				(len(found) != 1 || !strings.Contains(found[0].Text, tc.text) || found[0].Grave != tc.grave):
				t.Errorf("found %v, want %q (grave %v)", found, tc.text, tc.grave)
			}
		})
	}
}

// A sticky directory such as /tmp protects the directories on the way to a socket, if they exist and are not another
// user's. It does not protect the socket, and an open directory protects nothing.
func TestCheckWayToSocket(t *testing.T) {
	t.Parallel()
	const sticky, open = 0o777 | fs.ModeSticky, 0o777
	for name, tc := range map[string]struct {
		shared fs.FileMode
		way    string // of the socket in the shared directory
		uid    int    // the owner of the directory "own"; 0 for this user
		warns  bool
	}{
		"own directory":               {sticky, "own/s", 0, false},
		"link to an own directory":    {sticky, "link/s", 0, false},
		"directory of another user":   {sticky, "own/s", 12345, true},
		"directory to be made":        {sticky, "new/s", 0, true},
		"own directory, not sticky":   {open, "own/s", 0, true},
		"socket that exists":          {sticky, "socket", 0, true},
		"deeper, below own directory": {sticky, "own/new/s", 0, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			// A socket's path must be short, so that t.TempDir is not an option.
			shared, err := os.MkdirTemp("", "fp")
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = os.RemoveAll(shared) })
			own := mode(t, filepath.Join(shared, "own"), 0o755, true)
			if err := os.Symlink("own", filepath.Join(shared, "link")); err != nil {
				t.Fatal(err)
			}
			l, err := net.Listen("unix", filepath.Join(shared, "socket"))
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = l.Close() })
			if tc.uid != 0 && os.Chown(own, tc.uid, -1) != nil {
				t.Skip("only root can give a directory away")
			}
			if err := os.Chmod(shared, tc.shared); err != nil {
				t.Fatal(err)
			}
			found, err := Check(filepath.Join(shared, tc.way), Socket)
			if err != nil {
				t.Fatal(err)
			}
			if tc.warns != (len(found) == 1) || tc.warns && (found[0].Path != shared || found[0].Grave) {
				t.Errorf("found %v, want a warning: %v", found, tc.warns)
			}
		})
	}
}

func TestCheckPrivateDirectory(t *testing.T) {
	t.Parallel()
	for bits, want := range map[fs.FileMode]string{0o700: "", 0o750: "read by its group", 0o755: "read by every user"} {
		found, err := Check(mode(t, filepath.Join(t.TempDir(), "data"), bits, true), Private)
		if err != nil || (want == "") != (len(found) == 0) || want != "" && !strings.Contains(found[0].Error(), want) {
			t.Errorf("%#o: %v, %v, want %q", bits, found, err, want)
		}
	}
}

// A link counts with the directories on both ways.
func TestCheckLink(t *testing.T) {
	t.Parallel()
	top := t.TempDir()
	open := mode(t, filepath.Join(top, "open"), 0o777, true)
	file := mode(t, filepath.Join(open, "file"), 0o600, false)
	link := filepath.Join(top, "link")
	if err := os.Symlink(file, link); err != nil {
		t.Fatal(err)
	}
	found, err := Check(link, Secret)
	if err != nil || len(found) != 1 || found[0].Path != open || !found[0].Grave {
		t.Errorf("%v, %v", found, err)
	}
}
