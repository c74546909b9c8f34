package web

import (
	"net/http"
	"strings"

	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
)

// isPage reports whether a request is for Config.Pages: by GET or HEAD, and not for a method of a service.
func (h *Handler) isPage(r *http.Request) bool {
	if h.config.Pages == nil || r.Method != http.MethodGet && r.Method != http.MethodHead {
		return false
	}
	service, _, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
	return h.methods[r.URL.Path] == nil && (!isProcedure(r.URL.Path) || !strings.Contains(service, "."))
}

// authPath is the prefix of the requests for Config.Auth, callbackPath the one to which other pages may link.
const (
	authPath     = "/auth/"
	callbackPath = authPath + "callback"
)

// auth serves a request for Config.Auth. Pages of other servers may not send it, also not the pages of Config.Origins.
func (h *Handler) auth(w http.ResponseWriter, r *http.Request) {
	err := h.origins.checkHost(r)
	if r.URL.Path == callbackPath { // an issuer's page leads there
		err = h.origins.checkPage(r)
	} else if err == nil && !ownPage(r) {
		err = fault.New(fault.Forbidden, "other web pages may not log in or out")
	}
	if err != nil {
		h.refuse(w, r, err)
		return
	}
	if r.Body != nil && r.Body != http.NoBody {
		r.Body = h.bodyOf(w, r, h.config.BodyTimeout)
	}
	h.config.Auth.ServeHTTP(w, r.WithContext(withMetadata(r)))
}

// ownPage reports whether a request comes from a page of the listener, or from no page.
func ownPage(r *http.Request) bool {
	if origin := r.Header.Get("Origin"); origin != "" {
		return strings.EqualFold(origin, scheme(r)+"://"+r.Host)
	}
	site := r.Header.Get("Sec-Fetch-Site")
	return site != "cross-site" && site != "same-site"
}

// page serves a page. Pages of other servers may link to it, but not load it as a part of themselves.
func (h *Handler) page(w http.ResponseWriter, r *http.Request) {
	if err := h.origins.checkPage(r); err != nil {
		h.refuse(w, r, err)
		return
	}
	w.Header().Set("Cross-Origin-Resource-Policy", "same-origin")
	h.config.Pages.ServeHTTP(w, r)
}

// checkPage refuses requests for pages that other pages include, and names that lead to this machine by the will of
// another page's owner.
func (o origins) checkPage(r *http.Request) error {
	if err := o.checkHost(r); err != nil {
		return err
	}
	site := r.Header.Get("Sec-Fetch-Site")
	linked := r.Header.Get("Sec-Fetch-Mode") == "navigate" && r.Header.Get("Sec-Fetch-Dest") == "document"
	if (site == "cross-site" || site == "same-site") && !linked {
		return fault.New(fault.Forbidden, "other web pages may link to this one, but not include it")
	}
	return nil
}
