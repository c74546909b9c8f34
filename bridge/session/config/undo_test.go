package config_test

import (
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/copilot-grpc/copilot-grpc/bridge/jsonobj"
	"github.com/copilot-grpc/copilot-grpc/bridge/session/config"
)

func object(t interface{ Fatal(...any) }, text string) jsonobj.Object {
	o, err := jsonobj.Parse([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return o
}

// What others change between a change and its undo stays; all else is as before the change.
func TestUndoKeepsWhatOthersChanged(t *testing.T) {
	t.Parallel()
	before := config.State{
		Object: object(t, `{"model":"a","provider":{"x":1}}`), Labels: map[string]string{"team": "a"},
		Missing: []string{"session.gitHubToken", "session.provider.headers", "mcp.oauth"},
		Tools:   []config.Tool{{Name: "old"}}, ProviderRef: "house",
	}
	before.Remember(config.Setting{Key: "mode", Method: "session.mode.set"}, false)

	now := before
	now.Forget()
	now.Object = now.Object.Merge(object(t, `{"model":"b","clientName":"c"}`))
	now.Tools, now.ProviderRef = []config.Tool{{Name: "new"}}, ""
	after := now

	now.SetModel(object(t, `{"modelId":"other"}`))
	now.Labels = map[string]string{"team": "b"}
	now.Remember(config.Setting{Key: "name", Method: "session.name.set"}, false)
	now.Regained("mcp")
	now.Lack("session.new")
	now.Undo(before, after)

	if got, want := string(now.Object.JSON()), `{"model":"other","provider":{"x":1}}`; got != want {
		t.Errorf("the configuration is %s, not %s", got, want)
	}
	if now.Labels["team"] != "b" {
		t.Errorf("the labels are %v", now.Labels)
	}
	if len(now.Settings) != 2 || now.Settings[0].Key != "mode" || now.Settings[1].Key != "name" {
		t.Errorf("the settings are %v", now.Settings)
	}
	if want := []string{"session.gitHubToken", "session.provider.headers", "session.new"}; !slices.Equal(now.Missing, want) {
		t.Errorf("the missing secrets are %v", now.Missing)
	}
	if len(now.Tools) != 1 || now.Tools[0].Name != "old" || now.ProviderRef != "house" {
		t.Errorf("the tools are %v, the provider %q", now.Tools, now.ProviderRef)
	}
}

// Without a change by others, an undo restores the configuration exactly.
func TestUndoRestores(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		draw := func(name string) jsonobj.Object {
			var o jsonobj.Object
			for _, key := range rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"a", "b", "c", "d"}), 0, 4,
				rapid.ID[string]).Draw(t, name) {
				o.SetString(key, rapid.SampledFrom([]string{"1", "2"}).Draw(t, name))
			}
			return o
		}
		before := config.State{Object: draw("before")}
		now := before
		now.Object = now.Object.Merge(draw("change"))
		after := now
		now.Undo(before, after)
		if got, want := string(now.Object.JSON()), string(before.Object.JSON()); got != want {
			t.Fatalf("%s became %s", want, got)
		}
	})
}
