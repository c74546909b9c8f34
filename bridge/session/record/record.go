// Package record finds the files of the CLI's record of a session, in the CLI's folder of the session.
//
// The record is events.jsonl, one event a line. From version 1.0.106 the CLI may end a file and begin another: the new
// events.jsonl starts with a copy of the state (events with "checkpoint": true) and has the event session.journal_link,
// which names the earlier file in the same folder. The earlier file may have such an event too. So the record is a
// chain of files, and events.jsonl alone has only the newest part of the conversation.
//
// The agent's shells can write to the folder, so links are checked before they are followed. A chain that is incomplete,
// or has a link of an unknown form, gives ErrUnknown: a copy of it would lose a part of the record.
package record

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"regexp"
	"slices"
)

const (
	// File is the newest file of the record.
	File = "events.jsonl"
	// Link is the type of the event that names the file before.
	Link = "session.journal_link"
	// linkVersion is the version of the chain's format that this package knows.
	linkVersion = 1
	// maxLine bounds an event, and maxFiles the files of a record.
	maxLine  = 256 << 20
	maxFiles = 10000
)

// ErrUnknown says that a record has parts that cannot be found or are of an unknown form.
var ErrUnknown = errors.New("the CLI's record is not complete or not understood")

// numbered matches the names of earlier files: they have a number, and "jsonl" like File.
var numbered = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,200}$`)

// Earlier reports whether an earlier file of a record may have a name.
func Earlier(name string) bool {
	return name != File && numbered.MatchString(name) && bytes.ContainsAny([]byte(name), "0123456789") &&
		bytes.Contains([]byte(name), []byte("jsonl"))
}

// Files returns the names of the files of a session's record in its folder, the newest first; none if it has no record.
func Files(folder fs.FS, session string) (names []string, err error) {
	for name := File; name != ""; {
		if len(names) == maxFiles || slices.Contains(names, name) {
			return nil, unknown("its links form a circle, or it has more than %d files", maxFiles)
		}
		info, err := fs.Lstat(folder, name)
		if errors.Is(err, fs.ErrNotExist) {
			if name == File {
				return nil, nil
			}
			return nil, unknown("the file %q, which a link names, is missing", name)
		}
		if err != nil {
			return nil, err
		}
		if !info.Mode().IsRegular() {
			return nil, unknown("%q is not a regular file", name)
		}
		names = append(names, name)
		if name, err = earlier(folder, name, session); err != nil {
			return nil, err
		}
	}
	return names, nil
}

// link is the data of the event that names the file before.
type link struct {
	PreviousFile string
	SessionID    string
	Version      int
}

// earlier returns the name that the link in a file has; "" if the file has no link.
func earlier(folder fs.FS, name, session string) (string, error) {
	file, err := folder.Open(name)
	if err != nil {
		return "", err
	}
	defer file.Close()
	lines := bufio.NewScanner(file)
	lines.Buffer(nil, maxLine)
	found := ""
	for first := name != File; lines.Scan(); first = false {
		if !first && !bytes.Contains(lines.Bytes(), []byte(Link)) {
			continue
		}
		var event struct {
			Type       string
			Checkpoint bool
			Data       json.RawMessage
		}
		if err := json.Unmarshal(lines.Bytes(), &event); err != nil || event.Type == "" {
			if first {
				return "", unknown("%q does not begin with an event", name)
			}
			continue // a text with the word, or a line that was cut off
		}
		if event.Type != Link {
			continue
		}
		var l link
		switch err := json.Unmarshal(event.Data, &l); {
		case err != nil:
			return "", unknown("%q has a link of an unknown form: %v", name, err)
		case l.Version != linkVersion:
			return "", unknown("%q has a link of version %d, not %d", name, l.Version, linkVersion)
		case l.SessionID != session:
			return "", unknown("%q has a link of another session, %.140q", name, l.SessionID)
		case !Earlier(l.PreviousFile):
			return "", unknown("%q has a link to %.140q, which is not the name of an earlier file in the folder", name,
				l.PreviousFile)
		case found != "" && found != l.PreviousFile:
			return "", unknown("%q has several links", name)
		}
		found = l.PreviousFile
	}
	if errors.Is(lines.Err(), bufio.ErrTooLong) {
		return "", unknown("%q has an event of more than %d bytes", name, maxLine)
	}
	return found, lines.Err()
}

func unknown(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrUnknown, fmt.Sprintf(format, args...))
}
