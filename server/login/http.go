package login

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"mime"
	"net/http"
	"time"

	"github.com/copilot-grpc/copilot-grpc/bridge/audit"
	"github.com/copilot-grpc/copilot-grpc/bridge/caller"
	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
	"github.com/copilot-grpc/copilot-grpc/server/identity"
	"github.com/copilot-grpc/copilot-grpc/server/status"
)

// Path is the prefix of the requests that a Handler serves.
const Path = "/auth/"

// maxBody bounds the body of a request, which may have a JSON web token.
const maxBody = 32 << 10

// Caller is the caller of a request.
type Caller struct {
	caller.Caller
	// Method is the method of the login: one of the Method constants.
	Method string
	// Expires is when the proof expires; zero if never.
	Expires time.Time
}

// Authority authenticates requests.
type Authority interface {
	// Prove returns the login for a token. tenant selects one of the identity's tenants; it may be empty if there is
	// only one.
	Prove(ctx context.Context, token, tenant string) (identity.Login, error)
	// Caller returns the caller of a request, by its headers, cookie and connection.
	Caller(r *http.Request) (*Caller, error)
	// CallerOf returns the caller of a login.
	CallerOf(r *http.Request, l *identity.Login) (*Caller, error)
	// Bind returns the login of an identity.
	Bind(id *identity.Identity, tenant string) (identity.Login, error)
	// Flow returns the logins at an issuer, of the first one for an empty text; nil if there are none.
	Flow(issuer string) *identity.CodeFlow
	// Methods returns the methods by which a browser can log in.
	Methods() []string
}

// Handler serves the requests by which browsers log in and out. Its caller must have refused requests of web pages of
// other origins.
type Handler struct {
	store     *Store
	authority Authority
	sink      audit.Sink
	log       *slog.Logger
	// failures limits attempts that have failed: above the limits they are answered without a record. begun limits the
	// logins that wait for an issuer.
	failures, begun *attempts
	waiting         waiting
}

// NewHandler returns a handler. A nil sink records nothing.
func NewHandler(s *Store, a Authority, sink audit.Sink, log *slog.Logger) *Handler {
	if sink == nil {
		sink = audit.Discard
	}
	return &Handler{store: s, authority: a, sink: sink, log: log, failures: newAttempts(s.now),
		begun: newAttempts(s.now), waiting: waiting{now: s.now}}
}

// ServeHTTP implements http.Handler.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("Referrer-Policy", "no-referrer")
	serve := map[string]struct {
		method string
		do     func(http.ResponseWriter, *http.Request)
	}{
		Path + "me":     {http.MethodGet, h.me},
		Path + "link":   {http.MethodPost, h.link},
		Path + "token":  {http.MethodPost, h.token},
		Path + "logout": {http.MethodPost, h.logout},
		Path + "oidc":   {http.MethodGet, h.oidc},
		CallbackPath:    {http.MethodGet, h.callback},
	}
	to, ok := serve[r.URL.Path]
	switch {
	case !ok:
		http.NotFound(w, r)
	case r.Method != to.method:
		w.Header().Set("Allow", to.method)
		http.Error(w, "method not allowed", http.StatusMethodNotAllowed)
	default:
		to.do(w, r)
	}
}

// me tells a page its caller, or how to log in.
func (h *Handler) me(w http.ResponseWriter, r *http.Request) {
	who, err := h.authority.Caller(r)
	if err != nil {
		h.refuse(w, err)
		return
	}
	reply(w, http.StatusOK, describe(who))
}

// description is the JSON of a caller.
type description struct {
	Name   string `json:"name"`
	Tenant string `json:"tenant"`
	Role   string `json:"role"`
	// Admin reports that an owner has the role admin.
	Admin   bool       `json:"admin,omitempty"`
	Expires *time.Time `json:"expires,omitempty"`
	Method  string     `json:"method"`
}

func describe(who *Caller) description {
	d := description{Name: who.Name, Tenant: TenantName(who.Tenant), Role: min(who.Role, caller.Owner).String(),
		Admin: who.Role == caller.Admin, Method: who.Method}
	if !who.Expires.IsZero() {
		at := who.Expires.UTC().Truncate(time.Second)
		d.Expires = &at
	}
	return d
}

// TenantName returns the policy's name of a tenant.
func TenantName(tenant string) string {
	if tenant == caller.HostTenant {
		return caller.HostName
	}
	return tenant
}

// link logs in by a one-time link.
func (h *Handler) link(w http.ResponseWriter, r *http.Request) {
	var body struct {
		Token string `json:"token"`
	}
	if !h.read(w, r, &body) {
		return
	}
	l, ok := h.store.Use(body.Token)
	if !ok {
		h.refused(w, r, MethodLink, errorLink())
		return
	}
	h.begin(w, r, l)
}

// token logs in by a token.
func (h *Handler) token(w http.ResponseWriter, r *http.Request) {
	var body struct {
		Token  string `json:"token"`
		Tenant string `json:"tenant"`
	}
	if !h.read(w, r, &body) {
		return
	}
	l, err := h.authority.Prove(r.Context(), body.Token, body.Tenant)
	if err != nil {
		h.refused(w, r, MethodToken, err)
		return
	}
	l.Method = MethodToken
	h.begin(w, r, l)
}

// begin logs in and replies with the caller.
func (h *Handler) begin(w http.ResponseWriter, r *http.Request, l identity.Login) {
	who, err := h.enter(w, r, l)
	if err != nil {
		h.refused(w, r, l.Method, err)
		return
	}
	reply(w, http.StatusOK, describe(who))
}

// enter stores a login, ends the one that the browser had, and sets the cookie.
func (h *Handler) enter(w http.ResponseWriter, r *http.Request, l identity.Login) (*Caller, error) {
	who, err := h.authority.CallerOf(r, &l)
	if err != nil {
		return nil, err
	}
	cookie, l, err := h.store.Add(l)
	if err != nil {
		return nil, err
	}
	if err := h.store.Replace(digest(Cookie(r)), &l); err != nil {
		return nil, err
	}
	who.Method, who.Expires = l.Method, l.Expires
	setCookie(w, r, cookie, l.Expires, h.store.now())
	h.record(r, who.Caller, audit.Entry{Action: "login", Outcome: audit.Done, Kind: l.Method})
	return who, nil
}

// logout ends the login of the request's cookie.
func (h *Handler) logout(w http.ResponseWriter, r *http.Request) {
	if !isJSON(r) {
		replyError(w, http.StatusUnsupportedMediaType, fault.New(fault.InvalidField, "%s", needsJSON))
		return
	}
	var left struct {
		// Redirect is the page at the issuer that ends the session there.
		Redirect string `json:"redirect,omitempty"`
	}
	l := h.store.Find(Cookie(r))
	if err := h.store.End(digest(Cookie(r))); err != nil {
		h.failed(w, err)
		return
	}
	if l != nil {
		who := caller.Caller{Name: l.Identity.Name(), Tenant: l.Tenant}
		if found, err := h.authority.CallerOf(r, l); err == nil {
			who = found.Caller
		}
		h.record(r, who, audit.Entry{Action: "logout", Outcome: audit.Done, Kind: l.Method})
		if flow := h.authority.Flow(l.Identity.Issuer); flow != nil && l.Method == MethodOIDC {
			left.Redirect = flow.End(r.Context(), origin(r)+"/")
		}
	}
	clearCookie(w, r)
	reply(w, http.StatusOK, left)
}

const needsJSON = "the request needs the header \"Content-Type: application/json\""

func isJSON(r *http.Request) bool {
	kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	return err == nil && kind == "application/json"
}

// read reads the JSON of an attempt to log in. It replies if the request is invalid.
func (h *Handler) read(w http.ResponseWriter, r *http.Request, body any) bool {
	if !isJSON(r) { // a form of another page cannot send this type
		replyError(w, http.StatusUnsupportedMediaType, fault.New(fault.InvalidField, "%s", needsJSON))
		return false
	}
	d := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxBody))
	d.DisallowUnknownFields()
	err := d.Decode(body)
	if err == nil {
		if _, more := d.Token(); !errors.Is(more, io.EOF) {
			err = errors.New("the body has more than one value")
		}
	}
	if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
		replyError(w, http.StatusRequestEntityTooLarge,
			fault.New(fault.InvalidField, "the request has more than %d bytes", maxBody))
		return false
	}
	if err != nil { // its text could contain a part of the token
		replyError(w, http.StatusBadRequest, fault.New(fault.InvalidField, "the request is not the expected JSON"))
		return false
	}
	return true
}

// failedTooOften counts an attempt that has failed, and records it. Above the limits it replies, and returns true.
// Faults of the server do not count.
func (h *Handler) failedTooOften(w http.ResponseWriter, r *http.Request, method string, err error) bool {
	reason := fault.ReasonOf(err)
	if (reason == fault.Unauthenticated || reason == fault.Forbidden) && !h.failures.take(r.RemoteAddr) {
		h.tooMany(w)
		return true
	}
	h.record(r, caller.Caller{}, audit.Entry{Action: "login", Outcome: audit.Refused, Kind: method,
		Reason: reasonOf(err)})
	return false
}

// tooMany refuses an attempt above the limits.
func (h *Handler) tooMany(w http.ResponseWriter) {
	w.Header().Set("Retry-After", "1")
	replyError(w, http.StatusTooManyRequests, fault.New(fault.LimitExceeded, "there were too many logins"))
}

// refused refuses an attempt to log in.
func (h *Handler) refused(w http.ResponseWriter, r *http.Request, method string, err error) {
	if !h.failedTooOften(w, r, method, err) {
		h.refuse(w, err)
	}
}

// reasonOf returns the reason of an error, as the details of calls have it.
func reasonOf(err error) string {
	st, _ := status.Of(err)
	return status.Reason(st)
}

// refuse replies with an error of authentication.
func (h *Handler) refuse(w http.ResponseWriter, err error) {
	switch fault.ReasonOf(err) {
	case fault.Unauthenticated:
		replyError(w, http.StatusUnauthorized, err, h.authority.Methods()...)
	case fault.Forbidden:
		replyError(w, http.StatusForbidden, err, h.authority.Methods()...)
	default:
		h.failed(w, err)
	}
}

// failed replies that the server has a fault, and logs it.
func (h *Handler) failed(w http.ResponseWriter, err error) {
	h.log.Error("a login failed", slog.Any("error", err))
	replyError(w, http.StatusInternalServerError, fault.New(fault.Internal, "internal error"))
}

// record writes to the audit log.
func (h *Handler) record(r *http.Request, who caller.Caller, e audit.Entry) {
	who.Peer = r.RemoteAddr
	h.sink.Record(caller.With(r.Context(), who), e)
}

// problem is the JSON of an error.
type problem struct {
	Code    string `json:"code"`
	Message string `json:"message"`
	// Methods are the ways to log in.
	Methods []string `json:"methods,omitempty"`
}

// codes are Connect's names of HTTP statuses.
var codes = map[int]string{
	http.StatusBadRequest: "invalid_argument", http.StatusUnsupportedMediaType: "invalid_argument",
	http.StatusRequestEntityTooLarge: "resource_exhausted", http.StatusTooManyRequests: "resource_exhausted",
	http.StatusUnauthorized: "unauthenticated", http.StatusForbidden: "permission_denied",
	http.StatusInternalServerError: "internal",
}

func replyError(w http.ResponseWriter, code int, err error, methods ...string) {
	reply(w, code, problem{codes[code], err.Error(), methods})
}

func reply(w http.ResponseWriter, code int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(body) // the client may have gone
}
