package config

import (
	"testing"

	"github.com/copilot-grpc/copilot-grpc/bridge/jsonobj"
)

func TestAgentNames(t *testing.T) {
	t.Parallel()
	for config, want := range map[string]string{
		`{"model":"m"}`:         `{"model":"m"}`,
		`{"customAgents":null}`: `{"customAgents":null}`,
		`{"customAgents":[ {"name":"a","displayName":"A","tools":[]} ]}`:                                                        `{"customAgents":[ {"name":"a","displayName":"A","tools":[]} ]}`,
		`{"customAgents":[{"name":"a","tools":null,"prompt":"p"},{"name":"b","displayName":"B","tools":["view"]}],"model":"m"}`: `{"customAgents":[{"name":"a","tools":["*"],"prompt":"p","displayName":"a"},{"name":"b","displayName":"B","tools":["view"]}],"model":"m"}`,
		`{"customAgents":[7]}`: `{"customAgents":[7]}`,
	} {
		o := object(t, config)
		if got := string(WithAgentNames(o).JSON()); got != want {
			t.Errorf("%s becomes %s, want %s", config, got, want)
		}
		if again := string(o.JSON()); again != string(object(t, config).JSON()) {
			t.Errorf("%s itself was changed to %s", config, again)
		}
	}
}

func object(t *testing.T, text string) jsonobj.Object {
	t.Helper()
	o, err := jsonobj.Parse([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return o
}
