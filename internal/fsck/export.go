package fsck

import (
	"archive/tar"
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
	"unicode/utf8"
)

const (
	exportFormat = "copilot-grpc.session"
	// exportVersion is the greatest version of an export that the page describes.
	exportVersion = 1
)

// Limits of an export. Without them a small file could inflate to a large one.
const (
	maxParts     = 10_000
	maxPartBytes = 256 << 20 // of all parts together
	maxWhole     = 4 << 20   // of manifest.json and session.json, which are read whole
	maxEvent     = 32 << 20  // of a line
	maxHeaders   = 16 << 10  // before the content of an entry
	maxPadding   = 1 << 20   // behind the last entry
)

const (
	manifestFile = "manifest.json"
	digestFile   = "manifest.sha256"
	sessionFile  = "session.json"
	journalFile  = "journal.jsonl"
)

// kept are the types of the ephemeral events that an export has.
var kept = []string{
	"session.idle", "assistant.idle", "agent.interrupted", "assistant.usage", "session.usage_info", "session.quota_observation",
	"model.call_failure", "assistant.turn_retry", "sandbox.decision", "external_tool.completed", "session.title_changed",
	"session.snapshot_rewind",
}

// part is a file of an export.
type part struct {
	Name   string `json:"name"`
	Size   int64  `json:"size"`
	SHA256 string `json:"sha256"`
}

// export reads the export of a session, whose entries may have any order.
type export struct {
	*checker
	session *Session

	manifest, digest []byte // the content of their files; nil before them
	declared         []part // by the manifest; nil before it, or if it cannot be read
	found            map[string]part
	bytes            int64             // of the parts
	folders          int               // entries of folders
	names            map[string]string // the spelling of names, by their spelling without case
	ids              []eventID
}

// checkExport verifies the export of a session.
func checkExport(ctx context.Context, file string) (*Report, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	s := &Session{Folder: filepath.Base(file), Bytes: info.Size()}
	x := &export{
		checker: &checker{Report: Report{Bytes: s.Bytes}, ctx: ctx}, session: s,
		found: map[string]part{}, names: map[string]string{},
	}
	switch err = x.read(bufio.NewReader(f)); {
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case errors.Is(err, ErrLater):
		return nil, fmt.Errorf("%q is %w", file, err)
	case err != nil:
		x.Damage.add(s.Folder, "cannot be read to its end: %v", err)
	}
	s.Closed = err == nil && x.digest != nil
	x.compare(err == nil)
	x.repeated(journalFile, x.ids)
	s.Damage = x.Damage.Total
	x.Sessions = []Session{*s}
	return &x.Report, nil
}

// read reads the file. The error is why it cannot be read further, or ErrLater.
func (x *export) read(in *bufio.Reader) error {
	inflated, err := gzip.NewReader(in)
	if err != nil {
		return fmt.Errorf("the gzip header: %w", err)
	}
	inflated.Multistream(false)
	limit := &limited{ctx: x.ctx, from: inflated}
	for entries := tar.NewReader(limit); ; {
		limit.left = maxHeaders
		h, err := entries.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			return fmt.Errorf("the header of an entry: %w", err)
		}
		if h.Typeflag == tar.TypeDir || h.Typeflag == tar.TypeXGlobalHeader { // of other programs
			if x.folders++; x.folders > maxParts+maxDepth {
				return fmt.Errorf("it has more than %d folders", maxParts+maxDepth)
			}
			continue
		}
		limit.left = h.Size
		if err := x.entry(h, strings.TrimPrefix(h.Name, "./"), entries); err != nil {
			return fmt.Errorf("the entry %.140q: %w", h.Name, err)
		}
	}
	limit.left = maxPadding
	piece := make([]byte, 4<<10)
	for err == nil {
		var n int
		n, err = limit.Read(piece)
		if len(bytes.Trim(piece[:n], "\x00")) > 0 {
			return errors.New("data follow the tar archive")
		}
	}
	if err != io.EOF {
		return fmt.Errorf("the end of the gzip stream: %w", err)
	}
	if _, err = in.ReadByte(); err == nil {
		return errors.New("data follow the gzip stream")
	} else if err != io.EOF {
		return err
	}
	return nil
}

// entry reads an entry of the tar archive.
func (x *export) entry(h *tar.Header, name string, content io.Reader) (err error) {
	for key := range h.PAXRecords {
		if strings.HasPrefix(key, "GNU.sparse") {
			return errors.New("it is a sparse file")
		}
	}
	switch {
	case h.Typeflag != tar.TypeReg || h.Linkname != "":
		return errors.New("it is not a regular file")
	case h.Size > maxWhole && slices.Contains([]string{manifestFile, digestFile, sessionFile}, name):
		return fmt.Errorf("it has %d bytes, more than %d", h.Size, maxWhole)
	case name == manifestFile && x.manifest == nil:
		if x.manifest, err = io.ReadAll(content); err == nil {
			err = x.parse()
		}
		return err
	case name == digestFile && x.digest == nil:
		x.digest, err = io.ReadAll(content)
		return err
	}
	if x.bytes += h.Size; x.bytes > maxPartBytes || len(x.found) == maxParts {
		return fmt.Errorf("there are more than %d parts, or more than %d bytes in them", maxParts, maxPartBytes)
	}
	if fault := x.nameFault(name); fault != "" {
		x.Damage.add(name, "%s", fault)
	}
	digest := sha256.New()
	content = io.TeeReader(content, digest)
	switch name {
	case sessionFile:
		err = x.description(content)
	case journalFile:
		err = x.events(content)
	}
	if err == nil {
		_, err = io.Copy(io.Discard, content)
	}
	x.found[name] = part{name, h.Size, hex.EncodeToString(digest.Sum(nil))}
	return err
}

// parse reads the manifest. The error is ErrLater.
func (x *export) parse() error {
	var m struct {
		Format    string
		Version   int
		Session   string
		CreatedAt time.Time
		Epoch     uint64 `json:"epoch,string"`
		Seq       uint64 `json:"seq,string"`
		Parts     json.RawMessage
	}
	var parts []part
	err := json.Unmarshal(x.manifest, &m)
	switch {
	case err != nil:
	case m.Format != exportFormat || m.Version < 1:
		err = fmt.Errorf("its format is %q, and its version %d", m.Format, m.Version)
	case m.Version > exportVersion:
		return fmt.Errorf("%w: the version of its format is %d, later than %d", ErrLater, m.Version, exportVersion)
	default:
		err = json.Unmarshal(m.Parts, &parts)
	}
	if err == nil && parts == nil {
		err = errors.New("it has no list of parts")
	}
	if err != nil {
		x.Damage.add(manifestFile, "is not the manifest of an export: %v", err)
		return nil
	}
	x.declared, x.session.Key, x.session.Epoch, x.session.Last = parts, m.Session, m.Epoch, m.Seq
	for _, name := range []string{sessionFile, journalFile} {
		if !slices.ContainsFunc(parts, func(p part) bool { return p.Name == name }) {
			x.Damage.add(manifestFile, "does not have the part %s", name)
		}
	}
	return nil
}

// compare compares the parts with the manifest. ended reports that the file was read to its end.
func (x *export) compare(ended bool) {
	switch sum := sha256.Sum256(x.manifest); {
	case ended && x.manifest == nil:
		x.Damage.add(manifestFile, "is missing")
	case ended && x.digest == nil:
		x.Damage.add(digestFile, "is missing")
	case x.manifest != nil && x.digest != nil && string(x.digest) != hex.EncodeToString(sum[:]):
		x.Damage.add(digestFile, "is not the SHA-256 digest of %s", manifestFile)
	}
	if x.declared == nil {
		return
	}
	for _, p := range x.declared {
		found, there := x.found[p.Name]
		switch {
		case !there && ended:
			x.Damage.add(p.Name, "is missing, or twice in the manifest")
		case there && found != p:
			x.Damage.add(p.Name, "has %d bytes with the SHA-256 digest %s, and in the manifest %d with %q",
				found.Size, found.SHA256, p.Size, p.SHA256)
		}
		delete(x.found, p.Name)
	}
	for _, name := range slices.Sorted(maps.Keys(x.found)) {
		x.Damage.add(name, "is not in the manifest")
	}
}

// description verifies session.json.
func (x *export) description(from io.Reader) error {
	var s struct{ Create map[string]json.RawMessage }
	text, err := io.ReadAll(from)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(text, &s); err != nil || s.Create == nil {
		x.Damage.add(sessionFile, "has no request that creates a session: %v", err)
	}
	return nil
}

// events verifies journal.jsonl.
func (x *export) events(from io.Reader) error {
	lines := bufio.NewScanner(from)
	lines.Buffer(nil, maxEvent)
	number := uint64(1)
	for ; lines.Scan(); number++ {
		if line := bytes.TrimSpace(lines.Bytes()); len(line) == 0 {
			continue
		} else if fault := x.event(number, line); fault != "" {
			x.Damage.add(journalFile, "line %d %s", number, fault)
		}
	}
	if errors.Is(lines.Err(), bufio.ErrTooLong) {
		x.Damage.add(journalFile, "line %d has more than %d bytes", number, maxEvent)
		return nil
	}
	return lines.Err()
}

// event verifies a line of journal.jsonl.
func (x *export) event(number uint64, line []byte) (fault string) {
	var entry struct {
		Bridge bool
		Event  json.RawMessage
	}
	var event map[string]json.RawMessage
	text := func(member string) (value string) {
		_ = json.Unmarshal(event[member], &value)
		return value
	}
	switch {
	case !utf8.Valid(line):
		return "is not UTF-8"
	case json.Unmarshal(line, &entry) != nil || json.Unmarshal(entry.Event, &event) != nil || text("type") == "":
		return "is not an event"
	case string(event["ephemeral"]) == "true" && !slices.Contains(kept, text("type")):
		return fmt.Sprintf("is an ephemeral event of type %q, which a journal does not keep", text("type"))
	}
	x.session.Events++
	if id := idOf(text("id")); id != [16]byte{} && len(x.ids) < maxIDs {
		x.ids = append(x.ids, eventID{id, number})
	}
	return ""
}

// idOf is the id of an event, as journals have it.
func idOf(text string) (id [16]byte) {
	if len(text) == 36 && text[8] == '-' && text[13] == '-' && text[18] == '-' && text[23] == '-' {
		if uuid, err := hex.DecodeString(strings.ReplaceAll(text, "-", "")); err == nil {
			return [16]byte(uuid)
		}
	}
	if sum := sha256.Sum256([]byte(text)); text != "" {
		copy(id[:], sum[:])
	}
	return id
}

// limited is a reader that fails if there are more bytes than left.
type limited struct {
	ctx  context.Context //nolint:containedctx // that of the call of Check
	from io.Reader
	left int64
}

// Read implements io.Reader.
func (l *limited) Read(p []byte) (int, error) {
	if err := l.ctx.Err(); err != nil {
		return 0, err
	}
	if l.left <= 0 {
		if n, err := l.from.Read(p[:min(len(p), 1)]); n == 0 {
			return 0, err
		}
		return 0, errors.New("the headers of an entry, or the zeros behind the last one, are too long")
	}
	n, err := l.from.Read(p[:min(int64(len(p)), l.left)])
	l.left -= int64(n)
	return n, err
}
