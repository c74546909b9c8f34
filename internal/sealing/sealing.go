// Package sealing encrypts the credentials of sessions before they are stored, with keys of the operator. A sealed text
// is bound to its session: it cannot be opened as that of another one. The package has no goroutine and no lock.
package sealing

import (
	"crypto/cipher"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"

	"golang.org/x/crypto/chacha20poly1305"
)

// version is the first byte of a sealed text: XChaCha20-Poly1305 with a random nonce, which follows.
const version = 1

// ErrSealed reports a sealed text that none of the keys opens.
var ErrSealed = errors.New("no key opens the sealed credentials")

// Keys seals with its first key and opens with all of them, so that keys can be replaced: the new key is added as the
// last one to all servers, then made the first one, and the old key is removed when nothing is sealed with it any more.
type Keys struct{ aeads []cipher.AEAD }

// Parse reads keys: one a line, each 32 bytes in base64 (openssl rand -base64 32). Empty lines and lines that begin
// with # are skipped. Errors contain no key.
func Parse(text string) (*Keys, error) {
	k := &Keys{}
	number := 0
	for line := range strings.Lines(text) {
		number++
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		key, err := base64.StdEncoding.DecodeString(line)
		if err != nil || len(key) != chacha20poly1305.KeySize {
			return nil, fmt.Errorf("line %d is not a key: 32 bytes in base64 (openssl rand -base64 32)", number)
		}
		aead, err := chacha20poly1305.NewX(key)
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", number, err)
		}
		k.aeads = append(k.aeads, aead)
	}
	if len(k.aeads) == 0 {
		return nil, errors.New("there is no key: write one with openssl rand -base64 32")
	}
	return k, nil
}

// Seal encrypts a text of a session.
func (k *Keys) Seal(text []byte, session string) []byte {
	aead := k.aeads[0]
	out := make([]byte, 1+aead.NonceSize(), 1+aead.NonceSize()+len(text)+aead.Overhead())
	out[0] = version
	_, _ = rand.Read(out[1:]) // it never fails
	return aead.Seal(out, out[1:], text, []byte(session))
}

// Open decrypts what Seal returned for the same session. It returns ErrSealed if that was another session or none of
// the keys fits.
func (k *Keys) Open(sealed []byte, session string) ([]byte, error) {
	for _, aead := range k.aeads {
		if len(sealed) < 1+aead.NonceSize() || sealed[0] != version {
			break
		}
		nonce, rest := sealed[1:1+aead.NonceSize()], sealed[1+aead.NonceSize():]
		if text, err := aead.Open(nil, nonce, rest, []byte(session)); err == nil {
			return text, nil
		}
	}
	return nil, ErrSealed
}
