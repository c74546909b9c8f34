package app

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"

	"github.com/copilot-grpc/copilot-grpc/internal/offlinemodel"
)

// startOffline starts the offline model and returns the members of the configuration
// that sessions have by default because of it.
func startOffline(ctx context.Context, source string, logger *slog.Logger) (*offlinemodel.Server, []byte, error) {
	script := offlinemodel.Default()
	if source != OfflineDefault {
		var err error
		if script, err = loadScript(source); err != nil {
			return nil, nil, err
		}
	}
	s, err := offlinemodel.Start(ctx, offlinemodel.Options{Script: script, Logger: logger})
	if err != nil {
		return nil, nil, err
	}
	model := offlinemodel.DefaultModel
	if len(script.Models) > 0 {
		model = script.Models[0].ID
	}
	defaults, err := json.Marshal(map[string]any{
		"model": model,
		"provider": map[string]any{
			"type": "openai", "wireApi": "completions", "baseUrl": s.OpenAIBaseURL(), "apiKey": "offline",
		},
	})
	return s, defaults, err
}

// offlineEnv are the variables that send a CLI's calls of GitHub's own API to the
// offline model, for sessions with a GitHub token.
func offlineEnv(s *offlinemodel.Server) map[string]string {
	return map[string]string{"COPILOT_API_URL": s.URL(), "COPILOT_DEBUG_GITHUB_API_URL": s.URL()}
}

func loadScript(path string) (*offlinemodel.Script, error) {
	script, err := offlinemodel.Load(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("offline model: no script %q (the built-in script is %q)", path, OfflineDefault)
	}
	return script, err
}
