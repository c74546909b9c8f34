package store

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"strings"
	"time"
	"unique"

	"github.com/copilot-grpc/copilot-grpc/bridge/backend"
	"github.com/copilot-grpc/copilot-grpc/bridge/caller"
	"github.com/copilot-grpc/copilot-grpc/bridge/journal/segment"
)

// A record begins with its format. Records of the first format are JSON and begin with a brace.
const (
	formBinary = 1
	formJSON   = '{'
)

var errRecord = errors.New("not a record of the request log")

// jsonRequest is the first format of a record.
type jsonRequest struct {
	Key     string    `json:"key"`
	Sum     []byte    `json:"sum"`
	Expires time.Time `json:"expires"`
	Type    string    `json:"type,omitempty"`
	Answer  []byte    `json:"answer,omitempty"`
	Since   []byte    `json:"since,omitempty"`
	Over    bool      `json:"over,omitempty"`
}

// encodeRequest returns the record: its format, flags, the expiry in milliseconds since 1970, the parts with their lengths,
// and the answer up to the record's end.
func encodeRequest(r *backend.Request) []byte {
	parts := [...]string{r.Key.Tenant, r.Key.Operation, r.Key.ID, string(r.Sum), string(r.Since), r.Type}
	size := 32 + len(r.Answer)
	for _, p := range parts {
		size += len(p) + 2
	}
	out := append(make([]byte, 0, size), formBinary, 0)
	if r.Over {
		out[1] = 1
	}
	out = binary.AppendVarint(out, r.Expires.UnixMilli())
	for _, p := range parts {
		out = segment.AppendText(out, p)
	}
	return append(out, r.Answer...)
}

// decodeRequest parses a record. Sum, Since and Answer alias body. Strings that many records have in common are shared.
func decodeRequest(body []byte) (backend.Request, error) {
	if len(body) > 0 && body[0] == formJSON {
		var j jsonRequest
		if err := json.Unmarshal(body, &j); err != nil {
			return backend.Request{}, err
		}
		return backend.Request{
			Key: parseKey(j.Key), Sum: j.Sum, Expires: j.Expires, Type: j.Type, Answer: j.Answer,
			Since: j.Since, Over: j.Over, Bytes: int64(len(j.Answer)), Old: true,
		}, nil
	}
	if len(body) < 2 || body[0] != formBinary {
		return backend.Request{}, errRecord
	}
	expires, n := binary.Varint(body[2:])
	if n <= 0 {
		return backend.Request{}, errRecord
	}
	rest := segment.NewBody(body[2+n:])
	r := backend.Request{Over: body[1]&1 != 0, Expires: time.UnixMilli(expires)}
	r.Key = backend.Key{Tenant: shared(rest.Text()), Operation: shared(rest.Text()), ID: string(rest.Text())}
	r.Sum, r.Since, r.Type = rest.Text(), rest.Text(), shared(rest.Text())
	if !rest.OK {
		return backend.Request{}, errRecord
	}
	r.Answer, r.Bytes = rest.Rest, int64(len(rest.Rest))
	return r, nil
}

func shared(text []byte) string { return unique.Make(string(text)).Value() }

// parseKey splits a key of the first format, in which NULs join the parts and the tenant of the host's owner is omitted.
func parseKey(text string) backend.Key {
	var k backend.Key
	if first, rest, ok := strings.Cut(text, "\x00"); ok && caller.ValidTenant(first) && strings.Contains(rest, "\x00") {
		k.Tenant, text = first, rest
	}
	operation, rest, _ := strings.Cut(text, "\x00")
	k.Operation, k.ID = operation, rest
	switch operation {
	case backend.OpCreate, backend.OpResume, backend.OpAttach, backend.OpRun, backend.OpResolve:
		return k
	}
	session, id, _ := strings.Cut(rest, "\x00")
	k.Operation, k.ID = operation+"\x00"+session, id
	return k
}
