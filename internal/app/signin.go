package app

import (
	"context"
	"encoding/json"
	"maps"
	"slices"
	"strings"

	"github.com/copilot-grpc/copilot-grpc/bridge/runtime"
)

// signedIn is what a CLI says of who is signed in.
type signedIn struct {
	Is   bool   `json:"isAuthenticated"`
	Text string `json:"statusMessage"`
}

// askSignedIn asks a CLI whether it is signed in; nil when it does not say.
func askSignedIn(ctx context.Context, rt *runtime.Runtime) *signedIn {
	result, err := rt.Conn().Call(ctx, "auth.getStatus", []byte("{}"))
	if err != nil {
		return nil
	}
	var out signedIn
	if json.Unmarshal(result, &out) != nil {
		return nil
	}
	return &out
}

// modelFinding reports where sessions without a model provider find a model. signed is nil if no CLI was queried.
func (c *Config) modelFinding(signed *signedIn) runtime.Finding {
	const subject = "sign-in"
	switch {
	case c.OfflineModel != "":
		return fine(subject, "not needed: the offline model answers")
	case signed != nil && signed.Is:
		return fine(subject, "the CLI is signed in: %s", signed.Text)
	case len(c.Providers) > 0:
		names := strings.Join(slices.Sorted(maps.Keys(c.Providers)), ", ")
		return fine(subject, "not needed by sessions that name a provider of the server: %s", names)
	case signed != nil:
		return warn(subject, "the CLI is not signed in to GitHub: sessions without a provider fail with NOT_SIGNED_IN",
			"sign in with \"copilot login\" as the server's user, set COPILOT_GRPC_GITHUB_TOKEN, or configure a model "+
				"provider (--provider)")
	case c.GitHubToken != "":
		return fine(subject, "a GitHub token is configured; --start asks the CLI whether it is accepted")
	}
	return warn(subject, "no GitHub token and no model provider is configured, and only the CLI can report whether it is "+
		"signed in", "run doctor with --start")
}
