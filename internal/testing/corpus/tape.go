package corpus

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/copilot-grpc/copilot-grpc/bridge/translate"
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

// frames cuts a recording into messages. It leaves out an incomplete message at the end, where the runtime was killed
// or the limit was reached.
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

// Results returns what the calls in a folder's recordings were answered, by method: the
// results as the CLI wrote them.
func Results(dir string) (map[string][]json.RawMessage, error) {
	all, err := load(dir)
	if err != nil {
		return nil, err
	}
	results := make(map[string][]json.RawMessage)
	for _, x := range all {
		asked := make(map[string]string) // methods by id
		if err := eachFrame(x.to, func(f translate.Frame) {
			if f.Kind == translate.FrameRequest {
				asked[string(f.ID)] = string(f.Method)
			}
		}); err != nil {
			return nil, err
		}
		if err := eachFrame(x.from, func(f translate.Frame) {
			if method := asked[string(f.ID)]; f.Kind == translate.FrameResponse && f.Error == nil {
				results[method] = append(results[method], bytes.Clone(f.Result))
			}
		}); err != nil {
			return nil, err
		}
	}
	return results, nil
}

// eachFrame calls f for every message of a recording.
func eachFrame(recording []byte, f func(translate.Frame)) error {
	messages, err := frames(recording)
	if err != nil {
		return err
	}
	for n, text := range messages {
		frame, err := translate.ScanFrame(text)
		if err != nil {
			return fmt.Errorf("message %d: %w", n, err)
		}
		f(frame)
	}
	return nil
}
