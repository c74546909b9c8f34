package devissuer

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"html"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/copilot-grpc/copilot-grpc/internal/loopback"
)

// Bounds of the codes that were not exchanged yet.
const (
	codeTime = time.Minute
	maxCodes = 100
)

// codes are the codes that were not exchanged yet.
type codes struct {
	mu    sync.Mutex
	queue []code // oldest first
}

// code is what a browser brings to the client, and the client exchanges for an ID token.
type code struct {
	text, client, redirect, challenge string
	claims                            url.Values
	expires                           time.Time
}

func (c *codes) add(one code) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.queue) >= maxCodes {
		c.queue = c.queue[1:]
	}
	c.queue = append(c.queue, one)
}

func (c *codes) take(text string) (code, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i, one := range c.queue {
		if subtle.ConstantTimeCompare([]byte(one.text), []byte(text)) == 1 {
			c.queue = slices.Delete(c.queue, i, i+1)
			return one, true
		}
	}
	return code{}, false
}

// form returns the page that asks the person at the browser for a subject and sends the query's values again.
//
// It does not use html/template: that package calls methods by their names, so a program that links it contains all
// exported methods of all its types.
func form(query url.Values) string {
	var page strings.Builder
	page.WriteString(`<!doctype html><title>Issuer for trials</title>
<h1>Issuer for trials</h1><form action="/authorize">`)
	for _, name := range slices.Sorted(maps.Keys(query)) {
		for _, value := range query[name] {
			page.WriteString("\n<input type=\"hidden\" name=\"" + html.EscapeString(name) +
				"\" value=\"" + html.EscapeString(value) + "\">")
		}
	}
	page.WriteString(`
<label>Subject <input name="subject" required autofocus></label> <label>Groups <input name="groups"></label>
<button>Log in</button></form>
`)
	return page.String()
}

// authorize asks for a subject and sends the browser back to the client with a code.
func (i *Issuer) authorize(w http.ResponseWriter, r *http.Request) {
	query := r.URL.Query()
	to, err := url.Parse(query.Get("redirect_uri"))
	switch {
	case err != nil || !loopback.Host(to.Hostname()):
		http.Error(w, "redirect_uri is not on the loopback interface", http.StatusBadRequest)
		return
	case query.Get("response_type") != "code", query.Get("client_id") == "", query.Get("code_challenge") == "",
		query.Get("code_challenge_method") != "S256":
		http.Error(w, "want response_type=code, client_id, and code_challenge by S256", http.StatusBadRequest)
		return
	case query.Get("subject") == "":
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		_, _ = io.WriteString(w, form(query)) // the client may have gone
		return
	}
	claims := url.Values{"audience": {query.Get("client_id")}, "subject": {query.Get("subject")}}
	for _, name := range []string{"nonce", "groups", "lifetime"} {
		if query.Get(name) != "" {
			claims[name] = query[name]
		}
	}
	one := code{text: rand.Text(), client: query.Get("client_id"), redirect: query.Get("redirect_uri"),
		challenge: query.Get("code_challenge"), claims: claims, expires: i.now().Add(codeTime)}
	i.codes.add(one)
	back := to.Query()
	back.Set("code", one.text)
	back.Set("state", query.Get("state"))
	back.Set("iss", i.URL())
	to.RawQuery = back.Encode()
	http.Redirect(w, r, to.String(), http.StatusSeeOther)
}

// exchange gives a client the ID token for a code.
func (i *Issuer) exchange(w http.ResponseWriter, r *http.Request) {
	client, _, basic := r.BasicAuth()
	if !basic {
		client = r.PostFormValue("client_id")
	}
	one, ok := i.codes.take(r.PostFormValue("code"))
	sum := sha256.Sum256([]byte(r.PostFormValue("code_verifier")))
	if !ok || !i.now().Before(one.expires) || one.client != client || one.redirect != r.PostFormValue("redirect_uri") ||
		one.challenge != base64.RawURLEncoding.EncodeToString(sum[:]) ||
		r.PostFormValue("grant_type") != "authorization_code" {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusBadRequest)
		reply(w, map[string]string{"error": "invalid_grant"})
		return
	}
	token, err := i.Token(one.claims)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	reply(w, map[string]any{"access_token": rand.Text(), "token_type": "Bearer", "id_token": token})
}

// endSession sends the browser back to the client: this issuer has no sessions.
func (i *Issuer) endSession(w http.ResponseWriter, r *http.Request) {
	to, err := url.Parse(r.URL.Query().Get("post_logout_redirect_uri"))
	if err != nil || !loopback.Host(to.Hostname()) {
		http.Error(w, "post_logout_redirect_uri is not on the loopback interface", http.StatusBadRequest)
		return
	}
	http.Redirect(w, r, to.String(), http.StatusSeeOther)
}
