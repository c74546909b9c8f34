package login

import (
	"crypto/rand"
	"crypto/subtle"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"golang.org/x/oauth2"

	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
	"github.com/copilot-grpc/copilot-grpc/server/identity"
)

// Bounds of the logins that wait for an issuer: beyond them the oldest is dropped.
const (
	maxWaiting  = 1000
	waitingTime = 10 * time.Minute
)

// CallbackPath is the path to which issuers send browsers back.
const CallbackPath = Path + "callback"

// waiting are the logins that wait for an issuer.
type waiting struct {
	now func() time.Time

	mu    sync.Mutex
	queue []attempt // oldest first
}

// attempt is a login that waits for an issuer.
type attempt struct {
	identity.Attempt
	issuer  string
	cookie  string // its digest
	back    string // path of the page to return to
	tenant  string
	expires time.Time
	counted bool // by Handler.begun
}

// add adds an attempt.
func (w *waiting) add(a attempt) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for len(w.queue) > 0 && (len(w.queue) >= maxWaiting || !w.now().Before(w.queue[0].expires)) {
		w.queue = w.queue[1:]
	}
	w.queue = append(w.queue, a)
}

// take removes and returns the attempt with a state and a cookie. It leaves the attempts of other browsers.
func (w *waiting) take(state, cookie string) (attempt, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for i, a := range w.queue {
		if subtle.ConstantTimeCompare([]byte(a.State), []byte(state)) == 1 &&
			subtle.ConstantTimeCompare([]byte(a.cookie), []byte(digest(cookie))) == 1 {
			w.queue = append(w.queue[:i:i], w.queue[i+1:]...)
			return a, w.now().Before(a.expires)
		}
	}
	return attempt{}, false
}

// oidc sends a browser to an issuer.
func (h *Handler) oidc(w http.ResponseWriter, r *http.Request) {
	query := r.URL.Query()
	flow := h.authority.Flow(query.Get("issuer"))
	back, ok := localPath(query.Get("return"))
	switch {
	case flow == nil:
		http.NotFound(w, r)
		return
	case !ok:
		replyError(w, http.StatusBadRequest, fault.New(fault.InvalidField, "return is not a path of this server"))
		return
	}
	known := h.store.Find(Cookie(r)) != nil
	if !known && !h.begun.take(r.RemoteAddr) {
		h.tooMany(w)
		return
	}
	cookie := rand.Text()
	a := attempt{issuer: flow.Issuer(), cookie: digest(cookie), back: back, tenant: query.Get("tenant"),
		expires: h.store.now().Add(waitingTime), counted: !known, Attempt: identity.Attempt{
			State: rand.Text(), Nonce: rand.Text(), Verifier: oauth2.GenerateVerifier(), Redirect: origin(r) + CallbackPath}}
	to, err := flow.Begin(r.Context(), a.Attempt)
	if err != nil {
		h.refuse(w, err)
		return
	}
	h.waiting.add(a)
	http.SetCookie(w, attemptCookie(r, cookie, int(waitingTime/time.Second)))
	http.Redirect(w, r, to, http.StatusSeeOther)
}

// callback logs in a browser that comes back from an issuer.
func (h *Handler) callback(w http.ResponseWriter, r *http.Request) {
	back, err := h.finish(w, r)
	if err != nil {
		if h.failedTooOften(w, r, MethodOIDC, err) {
			return
		}
		status := http.StatusInternalServerError
		text := "internal error"
		if reason := fault.ReasonOf(err); reason == fault.Unauthenticated || reason == fault.Forbidden {
			status, text = http.StatusForbidden, err.Error()
		}
		http.Error(w, "The login failed: "+text+"\nGo back and try again.", status)
		return
	}
	http.Redirect(w, r, back, http.StatusSeeOther)
}

// finish logs in and returns the path of the page to return to.
func (h *Handler) finish(w http.ResponseWriter, r *http.Request) (back string, err error) {
	query := r.URL.Query()
	a, ok := h.waiting.take(query.Get("state"), one(r, attemptCookieName(r)))
	http.SetCookie(w, attemptCookie(r, "", -1))
	flow := h.authority.Flow(a.issuer)
	switch {
	case !ok || flow == nil || a.Redirect != origin(r)+CallbackPath:
		return "", fault.New(fault.Unauthenticated, "this browser did not begin it, or too long ago")
	case query.Has("iss") && query.Get("iss") != a.issuer:
		return "", fault.New(fault.Unauthenticated, "the answer is of another issuer")
	case query.Has("error"):
		return "", fault.New(fault.Unauthenticated, "the issuer refused it")
	}
	id, err := flow.Finish(r.Context(), a.Attempt, query.Get("code"))
	if err != nil {
		return "", err
	}
	l, err := h.authority.Bind(id, a.tenant)
	if err != nil {
		return "", err
	}
	l.Method, l.Expires = MethodOIDC, id.Expires
	if _, err := h.enter(w, r, l); err != nil {
		return "", err
	}
	if a.counted {
		h.begun.give(r.RemoteAddr)
	}
	return a.back, nil
}

// localPath returns a path of this server, "/" for an empty one. It returns false for URLs of other servers, in all
// spellings that browsers understand, and for paths that log in.
func localPath(path string) (string, bool) {
	if path == "" {
		return "/", true
	}
	u, err := url.Parse(path)
	if err != nil || u.Scheme != "" || u.Host != "" || u.User != nil || u.Opaque != "" || path[0] != '/' ||
		strings.HasPrefix(path, "//") || strings.HasPrefix(u.Path, "//") || strings.HasPrefix(u.Path, Path) ||
		strings.ContainsFunc(path, func(r rune) bool { return r <= ' ' || r == '\\' || r == 0x7f }) ||
		strings.Contains(u.Path, `\`) {
		return "", false
	}
	return path, true
}

// origin returns the origin of the listener as the browser knows it.
func origin(r *http.Request) string {
	if r.TLS != nil {
		return "https://" + r.Host
	}
	return "http://" + r.Host
}

func attemptCookieName(r *http.Request) string { return cookieName(r) + "-oidc" }

// attemptCookie returns the cookie that ties a login at an issuer to its browser. It is Lax, because the browser comes
// back from the issuer's page.
func attemptCookie(r *http.Request, value string, maxAge int) *http.Cookie {
	return &http.Cookie{Name: attemptCookieName(r), Value: value, Path: "/", Secure: r.TLS != nil, HttpOnly: true,
		SameSite: http.SameSiteLaxMode, MaxAge: maxAge}
}
