package identity

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"regexp"
	"strings"
	"time"

	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
)

// Tokens authenticates by static tokens. It stores only digests: tokens are long and random, so plain SHA-256 is
// sufficient.
type Tokens struct {
	byDigest map[[sha256.Size]byte]staticToken
	now      func() time.Time
}

type staticToken struct {
	name    string
	expires time.Time
}

var tokenName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$`)

// ParseTokens parses a tokens file: one token in each line, as "NAME SHA256 [expires=TIME]", with the digest in
// hexadecimal and the time as in RFC 3339. Empty lines and lines that begin with "#" are ignored.
func ParseTokens(text []byte, now func() time.Time) (*Tokens, error) {
	t := &Tokens{byDigest: map[[sha256.Size]byte]staticToken{}, now: now}
	names := map[string]bool{}
	lines := bufio.NewScanner(bytes.NewReader(text))
	for n := 1; lines.Scan(); n++ {
		fields := strings.Fields(lines.Text())
		if len(fields) == 0 || strings.HasPrefix(fields[0], "#") {
			continue
		}
		token, digest, err := parseToken(fields)
		if err == nil && names[token.name] {
			err = fmt.Errorf("the token name %q occurs twice", token.name)
		}
		if err == nil && t.byDigest[digest].name != "" {
			err = fmt.Errorf("the tokens %q and %q have the same digest", token.name, t.byDigest[digest].name)
		}
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", n, err)
		}
		names[token.name], t.byDigest[digest] = true, token
	}
	return t, lines.Err()
}

// parseToken keeps text that may be a token, written there by mistake, out of errors.
func parseToken(fields []string) (token staticToken, digest [sha256.Size]byte, err error) {
	if len(fields) < 2 || len(fields) > 3 {
		return token, digest, fmt.Errorf("the line has %d words, want NAME SHA256 [expires=TIME]", len(fields))
	}
	if !tokenName.MatchString(fields[0]) {
		return token, digest, fmt.Errorf("the name does not match %s", tokenName)
	}
	token.name = fields[0]
	sum, err := hex.DecodeString(fields[1])
	if err != nil || len(sum) != sha256.Size {
		return token, digest, fmt.Errorf("the second word of %q is not a hexadecimal SHA-256", token.name)
	}
	copy(digest[:], sum)
	if len(fields) == 3 {
		text, ok := strings.CutPrefix(fields[2], "expires=")
		if token.expires, err = time.Parse(time.RFC3339, text); !ok || err != nil {
			return token, digest, fmt.Errorf("the third word of %q is not expires=TIME", token.name)
		}
	}
	return token, digest, nil
}

// Names returns the names of the tokens.
func (t *Tokens) Names() map[string]bool {
	names := make(map[string]bool, len(t.byDigest))
	for _, token := range t.byDigest {
		names[token.name] = true
	}
	return names
}

// Has returns the identity of a token by its digest, in hexadecimal. It returns false if the token is unknown or has
// expired.
func (t *Tokens) Has(digest string) (*Identity, bool) {
	sum, err := hex.DecodeString(digest)
	if err != nil || len(sum) != sha256.Size {
		return nil, false
	}
	id, err := t.of([sha256.Size]byte(sum))
	return id, id != nil && err == nil
}

// Authenticate implements Authenticator. It looks up the digest, so that its time reveals nothing about tokens.
func (t *Tokens) Authenticate(_ context.Context, proof Proof) (*Identity, error) {
	if proof.Bearer == "" {
		return nil, nil
	}
	return t.of(sha256.Sum256([]byte(proof.Bearer)))
}

// of returns the identity of a token by its digest; nil if it is unknown.
func (t *Tokens) of(digest [sha256.Size]byte) (*Identity, error) {
	token, ok := t.byDigest[digest]
	if !ok {
		return nil, nil
	}
	if !token.expires.IsZero() && !t.now().Before(token.expires) {
		return nil, fault.New(fault.Unauthenticated, "the token has expired")
	}
	return &Identity{Source: StaticToken, Token: token.name, Expires: token.expires}, nil
}
