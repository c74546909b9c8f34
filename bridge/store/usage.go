package store

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"

	"github.com/copilot-grpc/copilot-grpc/bridge/journal/segment"
)

// usageFile is the file with what the deleted sessions of a tenant have used.
func (s *Store) usageFile(tenant string) string {
	sum := sha256.Sum256([]byte(tenant))
	return s.path("usage", hex.EncodeToString(sum[:16]))
}

// Usage returns what SaveUsage stored of a tenant, nil if it stored nothing. A damaged file is renamed, so that usage
// can be saved again.
func (s *Store) Usage(tenant string) (json.RawMessage, error) {
	path := s.usageFile(tenant)
	text, err := segment.ReadFile(s.fs, path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var e entry
	err = json.Unmarshal(text, &e)
	if err == nil && (e.ID != tenant || e.Sum != sumOf(e.State)) {
		err = errors.New("its tenant or its checksum is wrong")
	}
	if err != nil {
		err = fmt.Errorf("the usage of deleted sessions is damaged and was set aside: %w", err)
		return nil, errors.Join(err, s.fs.Rename(path, path+".damaged"))
	}
	return e.State, nil
}

// SaveUsage stores what the deleted sessions of a tenant have used. After a crash the file has the old content or the
// new. Calls for one tenant must not overlap.
func (s *Store) SaveUsage(tenant string, rows []byte) error {
	return s.writeEntry(s.usageFile(tenant), tenant, rows, 0)
}
