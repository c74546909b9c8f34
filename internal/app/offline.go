package app

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"

	"github.com/copilot-grpc/copilot-grpc/bridge/runtime"
	"github.com/copilot-grpc/copilot-grpc/internal/offlinemodel"
)

// startOffline starts the offline model and sends runtimes of the profile to it. It returns the members of the
// configuration that sessions have by default because of it.
func (a *App) startOffline(ctx context.Context, profile *runtime.Profile) (defaults []byte, err error) {
	script := offlinemodel.Default()
	if a.config.OfflineModel != OfflineDefault {
		if script, err = loadScript(a.config.OfflineModel); err != nil {
			return nil, err
		}
	}
	if a.offline, err = offlinemodel.Start(ctx, offlinemodel.Options{Script: script, Logger: a.logger}); err != nil {
		return nil, err
	}
	a.closers.add("offline model", a.offline.Close)
	// Sessions with a GitHub token call GitHub's own API.
	env := map[string]string{"COPILOT_API_URL": a.offline.URL(), "COPILOT_DEBUG_GITHUB_API_URL": a.offline.URL()}
	maps.Copy(env, profile.Env) // explicit settings take precedence
	profile.Env = env
	model := offlinemodel.DefaultModel
	if len(script.Models) > 0 {
		model = script.Models[0].ID
	}
	return json.Marshal(map[string]any{
		"model": model,
		"provider": map[string]any{
			"type": "openai", "wireApi": "completions", "baseUrl": a.offline.OpenAIBaseURL(), "apiKey": "offline",
		},
	})
}

func loadScript(path string) (*offlinemodel.Script, error) {
	script, err := offlinemodel.Load(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("offline model: no script %q (the built-in script is %q)", path, OfflineDefault)
	}
	return script, err
}
