package fsck

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"path"
	"regexp"
	"slices"
	"strings"
)

// maxID bounds the file with a session's key.
const maxID = 4 << 10

// copyName is what a folder in damaged/ may have after the session's name.
var copyName = regexp.MustCompile(`~[0-9]+$`)

// session verifies a session's folder.
func (c *checker) session(dir string) {
	size, damage := c.Bytes, c.Damage.Total
	s := Session{Folder: dir}
	name := copyName.ReplaceAllString(path.Base(dir), "")
	key := c.keyOf(dir, name)
	var err error
	s.Key, err = c.state(path.Join(dir, "session"), folderOf, name)
	stateless := errors.Is(err, fs.ErrNotExist)
	if err != nil && !stateless {
		later := ""
		if c.states[digestOf(key)] {
			later = "; a log has a later state"
		}
		c.Damage.add(path.Join(dir, "session"), "%v%s", err, later)
	}
	if s.Key == "" {
		s.Key = key
	}
	j := &journal{c: c, session: &s}
	if l := c.log(dir, j, "session", "id", "opening", "reason", "outbox"); l != nil {
		j.finish(l)
	} else if !stateless {
		n := len(c.joint.events[digestOf(s.Key)])
		c.Notes.add(dir, "has no journal, and %d events in journals/: it is new, or its segments were removed", n)
	}
	later, inLog := c.outboxes[digestOf(s.Key)]
	if path.Dir(dir) != "sessions" {
		inLog = false
	}
	if s.Prompts = c.outbox(path.Join(dir, "outbox"), later, inLog); stateless && path.Dir(dir) == "sessions" {
		c.stateless(dir, key, j.asked || c.Damage.Total > damage)
	}
	s.Bytes, s.Damage = c.Bytes-size, c.Damage.Total-damage
	c.Sessions = append(c.Sessions, s)
}

// keyOf returns the key that the file id has; empty without one.
func (c *checker) keyOf(dir, name string) string {
	text, err := c.read(path.Join(dir, "id"), maxID)
	switch {
	case err == nil && folderOf(string(text)) == name:
		return string(text)
	case err == nil && len(text) == 0:
		c.Notes.add(path.Join(dir, "id"), "is empty")
	case err == nil:
		c.Damage.add(path.Join(dir, "id"), "is the id of another session")
	default:
		c.unread(path.Join(dir, "id"), err)
	}
	return ""
}

// stateless reports a session without the file session. used says that a user has asked something in it.
func (c *checker) stateless(dir, key string, used bool) {
	_, err := c.root.Lstat(path.Join(dir, "opening"))
	switch {
	case err == nil && key == "":
		c.Notes.add(dir, "is a session whose creation was never confirmed")
	case used || key != "":
		c.Damage.add(dir, "has no file session")
	default:
		c.Notes.add(dir, "is a session that was never confirmed or used")
	}
}

// folderOf is the name of the folder of a session.
func folderOf(key string) string {
	name := strings.ToLower(key)
	if name != key {
		sum := sha256.Sum256([]byte(key))
		name += "=" + hex.EncodeToString(sum[:4])
	}
	return name
}

// usageOf is the name of the file with the usage of a tenant.
func usageOf(tenant string) string {
	sum := sha256.Sum256([]byte(tenant))
	return hex.EncodeToString(sum[:16])
}

// state verifies a file of checked JSON, and returns its id, whose name has to be that of the file or folder.
func (c *checker) state(file string, nameOf func(id string) string, name string) (id string, err error) {
	text, err := c.read(file, maxText)
	if err != nil {
		return "", err
	}
	var all map[string]json.RawMessage
	if err := json.Unmarshal(text, &all); err != nil {
		return "", fmt.Errorf("is not a JSON object: %w", err)
	}
	for member := range all {
		if !slices.Contains([]string{"id", "sum", "state", "number"}, member) {
			return "", fmt.Errorf("has a member %q", member)
		}
	}
	var sum string
	var number uint64
	for member, to := range map[string]any{"id": &id, "sum": &sum, "number": &number} {
		if value := all[member]; value != nil {
			if err := json.Unmarshal(value, to); err != nil {
				return "", fmt.Errorf("has the member %q: %w", member, err)
			}
		}
	}
	switch {
	case all["state"] == nil:
		err = errors.New("has no state")
	case nameOf(id) != name:
		err = fmt.Errorf("has the id %q", id)
	case all["sum"] != nil && sum != sumOf(all["state"]):
		err = fmt.Errorf("has the checksum %s, and its state %s", sum, sumOf(all["state"]))
	}
	if err != nil {
		return "", err
	}
	return id, nil
}

func sumOf(text []byte) string { return fmt.Sprintf("%08x", crc32.Checksum(text, castagnoli)) }

// usage verifies what deleted sessions have used.
func (c *checker) usage() {
	for _, e := range c.list("usage") {
		name := path.Join("usage", e.Name())
		if len(e.Name()) != 32 {
			c.other(name)
		} else if _, err := c.state(name, usageOf, e.Name()); err != nil && !errors.Is(err, fs.ErrNotExist) {
			c.Damage.add(name, "%v", err)
		}
	}
}

// reason returns why a folder was set aside.
func (c *checker) reason(dir string) string {
	var r struct{ Reason string }
	text, err := c.read(path.Join(dir, "reason"), maxText)
	if err == nil {
		err = json.Unmarshal(text, &r)
	}
	if err != nil {
		return fmt.Sprintf("the reason is unknown: %v", err)
	}
	return r.Reason
}

// cell verifies a cell, and returns its value. ok is false if it has none.
func (c *checker) cell(name string) (value uint64, ok bool) {
	const size, slot, used = 8192, 4096, 12
	text, err := c.read(name, size)
	if err != nil {
		c.unread(name, err)
		return 0, false
	}
	if len(text) < size {
		c.Damage.add(name, "has %d bytes", len(text))
		return 0, false
	}
	for _, at := range []int{0, slot} {
		part := text[at : at+used]
		switch {
		case bytes.Equal(part, make([]byte, used)): // never written
		case binary.LittleEndian.Uint32(part[8:]) != crc32.Checksum(part[:8], castagnoli):
			c.Damage.add(name, "has a damaged number at %d", at)
		default:
			value, ok = max(value, binary.LittleEndian.Uint64(part)), true
		}
	}
	return value, ok
}
