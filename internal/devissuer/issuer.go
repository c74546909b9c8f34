// Package devissuer is an OpenID Connect issuer on a loopback address, for trying out policies and for tests: it
// issues every requested token. Its key is created at its start and never stored.
package devissuer

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/go-jose/go-jose/v4"

	"github.com/copilot-grpc/copilot-grpc/internal/loopback"
)

const (
	// DefaultLifetime is the default lifetime of tokens.
	DefaultLifetime = time.Hour
	maxLifetime     = 24 * time.Hour
	keyID           = "dev"
	readTimeout     = 10 * time.Second
)

// Issuer is an issuer that listens.
type Issuer struct {
	listener net.Listener
	server   *http.Server
	key      *ecdsa.PrivateKey
	signer   jose.Signer
	now      func() time.Time
	codes    codes
}

// New returns an issuer that listens on the address, which has to be loopback. Run serves, and
// closes it.
func New(ctx context.Context, address string) (*Issuer, error) {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	if !loopback.Host(host) {
		return nil, fmt.Errorf("address %q is not loopback: this issuer gives tokens to every caller", address)
	}
	i := &Issuer{now: time.Now}
	if i.key, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader); err != nil {
		return nil, err
	}
	key := jose.SigningKey{Algorithm: jose.ES256, Key: jose.JSONWebKey{Key: i.key, KeyID: keyID}}
	if i.signer, err = jose.NewSigner(key, (&jose.SignerOptions{}).WithType("JWT")); err != nil {
		return nil, err
	}
	var lc net.ListenConfig
	if i.listener, err = lc.Listen(ctx, "tcp", address); err != nil {
		return nil, err
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /.well-known/openid-configuration", i.configuration)
	mux.HandleFunc("GET /keys", i.keys)
	mux.HandleFunc("GET /token", i.token)
	mux.HandleFunc("GET /authorize", i.authorize)
	mux.HandleFunc("POST /token", i.exchange)
	mux.HandleFunc("GET /logout", i.endSession)
	i.server = &http.Server{Handler: local(mux), ReadTimeout: readTimeout}
	return i, nil
}

// URL is the issuer's name, as tokens have it.
func (i *Issuer) URL() string { return "http://" + i.listener.Addr().String() }

// Run serves until ctx ends.
func (i *Issuer) Run(ctx context.Context) error {
	defer context.AfterFunc(ctx, func() { _ = i.server.Close() })()
	if err := i.server.Serve(i.listener); !errors.Is(err, http.ErrServerClosed) {
		return errors.Join(err, i.server.Close())
	}
	return nil
}

func (i *Issuer) configuration(w http.ResponseWriter, _ *http.Request) {
	reply(w, map[string]any{
		"issuer": i.URL(), "jwks_uri": i.URL() + "/keys", "authorization_endpoint": i.URL() + "/authorize",
		"token_endpoint": i.URL() + "/token", "end_session_endpoint": i.URL() + "/logout",
		"response_types_supported": []string{"code"}, "code_challenge_methods_supported": []string{"S256"},
		"grant_types_supported": []string{"authorization_code"}, "subject_types_supported": []string{"public"},
		"id_token_signing_alg_values_supported": []string{string(jose.ES256)},
	})
}

func (i *Issuer) keys(w http.ResponseWriter, _ *http.Request) {
	reply(w,
		jose.JSONWebKeySet{Keys: []jose.JSONWebKey{{Key: i.key.Public(), KeyID: keyID, Algorithm: string(jose.ES256),
			Use: "sig"}}})
}

// token makes a token of the parameters: audience and subject, which have to be there,
// lifetime, and any others as claims; what is there twice becomes a list, and groups always.
func (i *Issuer) token(w http.ResponseWriter, r *http.Request) {
	token, err := i.Token(r.URL.Query())
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	w.Header().Set("Content-Type", "text/plain")
	_, _ = io.WriteString(w, token) // the client may have gone
}

// Token makes a token, as GET /token does.
func (i *Issuer) Token(asked url.Values) (string, error) {
	lifetime := DefaultLifetime
	if text := asked.Get("lifetime"); text != "" {
		var err error
		if lifetime, err = time.ParseDuration(text); err != nil || lifetime <= 0 || lifetime > maxLifetime {
			return "", fmt.Errorf("lifetime %q is not a duration between 0 and %v", text, maxLifetime)
		}
	}
	now := i.now()
	claims := map[string]any{"iss": i.URL(), "iat": now.Unix(), "exp": now.Add(lifetime).Unix()}
	for name, values := range asked {
		switch name {
		case "lifetime":
		case "audience":
			claims["aud"] = values
		case "subject":
			claims["sub"] = values[0]
		case "iss", "iat", "exp", "aud", "sub":
			return "", fmt.Errorf("unknown parameter %q: use audience, subject or lifetime", name)
		default:
			claims[name] = values
			if len(values) == 1 && name != "groups" {
				claims[name] = values[0]
			}
		}
	}
	if claims["aud"] == nil || claims["sub"] == nil {
		return "", errors.New("audience and subject are required")
	}
	payload, err := json.Marshal(claims)
	if err != nil {
		return "", err
	}
	signed, err := i.signer.Sign(payload)
	if err != nil {
		return "", err
	}
	return signed.CompactSerialize()
}

// local refuses requests that name another host: a web page can direct its own host name here to get tokens.
func local(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		host := r.Host
		if h, _, err := net.SplitHostPort(r.Host); err == nil {
			host = h
		}
		if !loopback.Host(strings.Trim(host, "[]")) || r.Header.Get("Origin") != "" {
			http.Error(w, "this issuer accepts requests from its own machine only", http.StatusForbidden)
			return
		}
		next.ServeHTTP(w, r)
	})
}

func reply(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(v) // the client may have gone
}
