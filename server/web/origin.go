package web

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"connectrpc.com/cors"

	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
	"github.com/copilot-grpc/copilot-grpc/internal/loopback"
)

// ownHeaders are the headers that pages may send in addition to the headers of the protocols. ownExposed are the
// headers that pages may read.
var (
	ownHeaders = []string{"Authorization", "Copilot-Request-Id", "Copilot-Fidelity", "Copilot-Tenant",
		"Copilot-Runtime-Profile-Bin", "Last-Event-ID", "Traceparent", "Tracestate"}
	ownExposed = []string{"Copilot-Reason", "Copilot-Field", "Copilot-Position", "Copilot-Owner-Node",
		"Trailer-Copilot-Reason", "Trailer-Copilot-Field", "Trailer-Copilot-Position"}
)

// preflightAge is how long browsers may remember the answer to a preflight request, in seconds.
const preflightAge = "7200"

// origins determines which web pages may call. A browser sends the origin of the page with a call, and, unless it is
// old, how the page is related to the server.
type origins struct {
	allowed []string
	anyHost bool
}

func newOrigins(allowed []string, anyHost bool) (origins, error) {
	o := origins{anyHost: anyHost}
	for _, origin := range allowed {
		u, err := url.Parse(origin)
		if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" ||
			!strings.EqualFold(u.Scheme+"://"+u.Host, origin) {
			return o, fmt.Errorf("origin %q is not of the form https://HOST or https://HOST:PORT", origin)
		}
		o.allowed = append(o.allowed, strings.ToLower(origin))
	}
	return o, nil
}

// CheckOrigin returns an error if an origin of Config.Origins is invalid.
func CheckOrigin(origin string) error {
	_, err := newOrigins([]string{origin}, false)
	return err
}

// check refuses requests of foreign web pages, and sets the headers for those of allowed ones. done reports that it
// answered a preflight request.
func (o origins) check(w http.ResponseWriter, r *http.Request) (done bool, err error) {
	if err := o.checkHost(r); err != nil {
		return false, err
	}
	w.Header().Add("Vary", "Origin")
	origin := strings.ToLower(r.Header.Get("Origin"))
	switch {
	case origin == "":
		if site := r.Header.Get("Sec-Fetch-Site"); site == "cross-site" || site == "same-site" {
			return false, fault.New(fault.Forbidden, "calls from other web pages are not allowed")
		}
		return false, nil
	case origin == strings.ToLower(scheme(r)+"://"+r.Host):
		return false, nil
	case !slices.Contains(o.allowed, origin):
		return false, fault.New(fault.Forbidden, "calls from web pages of %q are not allowed (web_origins)", origin)
	}
	header := w.Header()
	header.Set("Access-Control-Allow-Origin", r.Header.Get("Origin"))
	if r.Method != http.MethodOptions || r.Header.Get("Access-Control-Request-Method") == "" {
		header.Set("Access-Control-Expose-Headers", strings.Join(append(cors.ExposedHeaders(), ownExposed...), ", "))
		return false, nil
	}
	header.Set("Access-Control-Allow-Methods", strings.Join(cors.AllowedMethods(), ", "))
	header.Set("Access-Control-Allow-Headers", strings.Join(append(cors.AllowedHeaders(), ownHeaders...), ", "))
	header.Set("Access-Control-Max-Age", preflightAge)
	w.WriteHeader(http.StatusNoContent)
	return true, nil
}

// checkHost refuses names in the Host header that a web page could make lead to this machine.
func (o origins) checkHost(r *http.Request) error {
	if !o.anyHost && !loopback.Authority(r.Host) {
		return fault.New(fault.Forbidden, "the host must be localhost, 127.0.0.1 or [::1], not %q", r.Host)
	}
	return nil
}

func scheme(r *http.Request) string {
	if r.TLS != nil {
		return "https"
	}
	return "http"
}
