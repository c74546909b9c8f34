package offlinemodel

import (
	"cmp"
	"maps"
	"net/http"
	"time"
)

const (
	userPath = "/copilot_internal/user"
	// autoSessionPath returns the model to use when the choice is left to the service.
	autoSessionPath = "/models/session"
)

// github answers the part of GitHub's own API that the CLI cannot do without.
// The rest of it is answered with 404, which the CLI takes in its stride.
func (a *answer) github() {
	script := a.scope.currentScript()
	switch {
	case a.request.Path == userPath && a.request.Method == http.MethodGet:
		user, known := script.GitHub.user(a.request.Token())
		if !known {
			a.json(http.StatusUnauthorized, map[string]any{"message": "Bad credentials"})
			return
		}
		a.json(http.StatusOK, user.document(a.scope.base))
	case a.request.Path == autoSessionPath && a.request.Method == http.MethodPost:
		a.json(http.StatusOK, autoSession(script))
	default:
		a.json(http.StatusNotFound, map[string]any{"message": "Not Found"})
	}
}

// names reports whether an account is known by this very token.
func (g GitHub) names(token string) bool {
	for _, user := range g.Users {
		if user.Token == token {
			return true
		}
	}
	return false
}

func (g GitHub) user(token string) (User, bool) {
	if token == "" {
		return User{}, false
	}
	for _, user := range g.Users {
		if user.Token == token {
			return user, true
		}
	}
	for _, user := range g.Users {
		if user.Token == "*" {
			return user, true
		}
	}
	return User{}, len(g.Users) == 0
}

func (u User) document(base string) map[string]any {
	document := map[string]any{
		"login": cmp.Or(u.Login, "offline-user"), "copilot_plan": cmp.Or(u.Plan, "individual_pro"),
		"is_mcp_enabled": !u.NoMCP, "chat_enabled": true, "organization_list": []any{},
		"analytics_tracking_id": "offline",
		"endpoints":             map[string]any{"api": base, "telemetry": base + "/telemetry"},
	}
	if len(u.Quota) > 0 {
		snapshots := map[string]any{}
		for name, quota := range u.Quota {
			snapshots[name] = quota.document(name)
		}
		document["quota_snapshots"] = snapshots
	}
	maps.Copy(document, u.Extra)
	return document
}

func (q Quota) document(name string) map[string]any {
	remaining := float64(max(q.Entitlement, 0)) * q.PercentRemaining / 100
	document := map[string]any{
		"quota_id": name, "entitlement": q.Entitlement, "percent_remaining": q.PercentRemaining,
		"overage_count": q.Overage, "overage_permitted": q.OveragePermitted, "unlimited": q.Entitlement < 0,
		"remaining": int(remaining), "quota_remaining": remaining,
	}
	if q.ResetDate != "" {
		document["timestamp_utc"] = q.ResetDate
	}
	return document
}

// autoSession chooses the first model.
func autoSession(script *Script) map[string]any {
	var ids []string
	for _, model := range models(script) {
		ids = append(ids, model.ID)
	}
	return map[string]any{
		"available_models": ids, "selected_model": ids[0], "session_token": "offline-auto-session",
		"expires_at": time.Now().Add(time.Hour).Unix(), "discounted_costs": map[string]any{},
	}
}
