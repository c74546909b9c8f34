package corpus

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// exchange is the traffic of one runtime.
type exchange struct {
	name     string
	to, from []byte
}

// load reads the traffic that was recorded into a folder.
func load(dir string) ([]exchange, error) {
	names, err := filepath.Glob(filepath.Join(dir, "*"+fromCLI))
	if err != nil {
		return nil, err
	}
	slices.Sort(names)
	var all []exchange
	for _, name := range names {
		base := strings.TrimSuffix(name, fromCLI)
		from, err := os.ReadFile(name)
		if err != nil {
			return nil, err
		}
		to, err := os.ReadFile(base + toCLI)
		if err != nil {
			return nil, err
		}
		all = append(all, exchange{name: filepath.Base(base), to: to, from: from})
	}
	return all, nil
}

// frames cuts a recording into messages. What was cut off at its end, because the
// runtime was killed or the limit was reached, is left out.
func frames(recording []byte) ([][]byte, error) {
	var out [][]byte
	for rest := recording; ; {
		header, body, ok := bytes.Cut(rest, []byte("\r\n\r\n"))
		if !ok {
			return out, nil
		}
		length, ok := bytes.CutPrefix(header, []byte("Content-Length: "))
		n, err := strconv.Atoi(string(length))
		if !ok || err != nil || n < 0 {
			return out, fmt.Errorf("message %d: header %.40q", len(out), header)
		}
		if n > len(body) {
			return out, nil
		}
		out = append(out, body[:n:n])
		rest = body[n:]
	}
}
