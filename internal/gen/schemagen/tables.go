package schemagen

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io/fs"
)

// TablesSum is the sha256 of all that generating depends on besides the schemas and
// the code: overlay, words and exceptions. The ledger records that of the last run, so
// that a change to a table without a run, which would tell dead rows, is noticed
// where the schemas are not at hand.
func TablesSum() (string, error) {
	h := sha256.New()
	fmt.Fprintln(h, Version, renames, presences, nullings, paramsOverrides, secretRows, memberNames, rpcNames)
	for _, fsys := range []fs.FS{overlayFiles, wordFiles} {
		err := fs.WalkDir(fsys, ".", func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() {
				return err
			}
			data, err := fs.ReadFile(fsys, path)
			fmt.Fprintf(h, "%s %d\n%s", path, len(data), data)
			return err
		})
		if err != nil {
			return "", fmt.Errorf("sum of the tables: %w", err)
		}
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}
