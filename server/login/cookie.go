package login

import (
	"net"
	"net/http"
	"time"
)

// cookieName returns the name of the login's cookie. Cookies are shared by all ports of a host, so the name has the
// port as the browser knows it.
func cookieName(r *http.Request) string {
	prefix, port := "copilot-grpc-", "80"
	if r.TLS != nil {
		// Browsers accept this prefix only for this host, with TLS and for all paths.
		prefix, port = "__Host-copilot-grpc-", "443"
	}
	if _, given, err := net.SplitHostPort(r.Host); err == nil {
		port = given
	}
	return prefix + port
}

// Cookie returns the secret of the login's cookie; "" if there is none, or several, of which another server of the
// host may have set one.
func Cookie(r *http.Request) string {
	return one(r, cookieName(r))
}

// one returns the value of a cookie that occurs once; "" for others.
func one(r *http.Request, name string) string {
	cookies := r.CookiesNamed(name)
	if len(cookies) != 1 {
		return ""
	}
	return cookies[0].Value
}

// setCookie sets the login's cookie. Scripts cannot read it, and pages of other sites cannot make a browser send it.
func setCookie(w http.ResponseWriter, r *http.Request, secret string, expires, now time.Time) {
	http.SetCookie(w, &http.Cookie{Name: cookieName(r), Value: secret, Path: "/", Secure: r.TLS != nil, HttpOnly: true,
		SameSite: http.SameSiteStrictMode, MaxAge: max(int(expires.Sub(now)/time.Second), 1)})
}

// clearCookie removes the login's cookie.
func clearCookie(w http.ResponseWriter, r *http.Request) {
	http.SetCookie(w, &http.Cookie{Name: cookieName(r), Path: "/", Secure: r.TLS != nil, HttpOnly: true,
		SameSite: http.SameSiteStrictMode, MaxAge: -1})
}
