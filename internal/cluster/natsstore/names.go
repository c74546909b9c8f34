package natsstore

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"regexp"
	"strings"
)

// clusterName is the form of Config.Cluster. It has no separator of streams or subjects, so that no two clusters share
// a name.
var clusterName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9-]{0,31}$`)

// names makes the names of one cluster.
type names struct{ cluster string }

// stream returns the name of the stream of a kind.
func (n names) stream(kind string) string { return n.cluster + "_" + kind }

// subject returns a subject of a kind. The parts are tokens, or wildcards.
func (n names) subject(kind string, parts ...string) string {
	return strings.Join(append([]string{n.cluster, kind}, parts...), ".")
}

// maxToken bounds an encoded name in bytes.
const maxToken = 128

// token encodes any text as one token of a subject, which is also valid in the key of a bucket: letters, digits,
// hyphens and underscores stay, every other byte becomes "=" and two hexadecimal digits. A text whose encoding would be
// empty or longer than maxToken becomes "==" and its SHA-256 digest, which no other encoding begins with. Different
// texts have different tokens.
func token(text string) string {
	var out strings.Builder
	for i := 0; i < len(text) && out.Len() <= maxToken; i++ {
		if c := text[i]; isPlain(c) {
			out.WriteByte(c)
		} else {
			fmt.Fprintf(&out, "=%02x", c)
		}
	}
	if n := out.Len(); n == 0 || n > maxToken {
		sum := sha256.Sum256([]byte(text))
		return "==" + hex.EncodeToString(sum[:])
	}
	return out.String()
}

func isPlain(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '-' || c == '_'
}
