package identity

import (
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"net/url"
	"strings"
	"testing"
	"time"
)

func digestOf(token string) string {
	sum := sha256.Sum256([]byte(token))
	return hex.EncodeToString(sum[:])
}

func TestTokens(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	tokens, err := ParseTokens([]byte("# ours\n\nci "+digestOf("secret-1")+"\nold "+digestOf("secret-2")+
		" expires=2025-12-31T00:00:00Z\n"),
		func() time.Time { return now })
	if err != nil {
		t.Fatal(err)
	}
	if id, err := tokens.Authenticate(t.Context(), Proof{Bearer: "secret-1"}); err != nil || id.Token != "ci" {
		t.Errorf("%+v, %v", id, err)
	}
	if id, err := tokens.Authenticate(t.Context(), Proof{Bearer: "secret-2"}); err == nil {
		t.Errorf("an expired token is %+v", id)
	}
	for _, other := range []string{"", "secret-3", digestOf("secret-1")} {
		if id, err := tokens.Authenticate(t.Context(), Proof{Bearer: other}); id != nil || err != nil {
			t.Errorf("%q is %+v, %v", other, id, err)
		}
	}
	for text, want := range map[string]string{
		"ci": "1 words", "c!i " + digestOf("x"): "name", "ci my-plain-token": "SHA-256",
		"ci " + digestOf("x") + " soon":               "expires",
		"a " + digestOf("x") + "\na " + digestOf("y"): "occurs twice",
		"a " + digestOf("x") + "\nb " + digestOf("x"): "digest",
	} {
		_, err := ParseTokens([]byte(text), time.Now)
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "my-plain-token") {
			t.Errorf("%q: %v, want %q and no token", text, err, want)
		}
	}
}

func TestCertificates(t *testing.T) {
	t.Parallel()
	cert := func(uris ...string) *x509.Certificate {
		c := &x509.Certificate{DNSNames: []string{"svc.example"}, NotAfter: time.Now().Add(time.Hour)}
		for _, text := range uris {
			u, err := url.Parse(text)
			if err != nil {
				t.Fatal(err)
			}
			c.URIs = append(c.URIs, u)
		}
		return c
	}
	// A connection may outlast the certificate of its handshake.
	valid := func(from, until time.Duration) *x509.Certificate {
		c := cert()
		c.NotBefore, c.NotAfter = time.Now().Add(from), time.Now().Add(until)
		return c
	}
	a := Certificates{TrustDomains: []string{"corp.example"}, Now: time.Now}
	for name, tc := range map[string]struct {
		cert   *x509.Certificate
		spiffe string
		ok     bool
	}{
		"spiffe":       {cert("spiffe://corp.example/a/b"), "spiffe://corp.example/a/b", true},
		"none":         {cert(), "", true},
		"another URI":  {cert("https://corp.example"), "", true},
		"two":          {cert("spiffe://corp.example/a", "spiffe://corp.example/b"), "", false},
		"two kinds":    {cert("spiffe://corp.example/a", "https://x"), "", false},
		"other domain": {cert("spiffe://evil.example/a"), "", false},
		"port":         {cert("spiffe://corp.example:1/a"), "", false},
		"user":         {cert("spiffe://u@corp.example/a"), "", false},
		"query":        {cert("spiffe://corp.example/a?b"), "", false},
		"climbing":     {cert("spiffe://corp.example/a/../b"), "", false},
		"escaped":      {cert("spiffe://corp.example/a%2fb"), "", false},
		"slash":        {cert("spiffe://corp.example/a/"), "", false},
		"early":        {valid(time.Minute, time.Hour), "", false},
		"expired":      {valid(-time.Hour, -time.Minute), "", false},
	} {
		id, err := a.Authenticate(t.Context(), Proof{Certificate: tc.cert})
		if (err == nil) != tc.ok || tc.ok && (id.SPIFFE != tc.spiffe || id.DNS[0] != "svc.example") {
			t.Errorf("%s: %+v, %v", name, id, err)
		}
	}
	if id, err := a.Authenticate(t.Context(), Proof{Bearer: "x"}); id != nil || err != nil {
		t.Errorf("without a certificate: %v, %v", id, err)
	}
}
