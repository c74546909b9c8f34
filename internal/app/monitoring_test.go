package app

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
)

// used is a figure that the dashboard or a rule uses, with its matchers or nothing.
var used = regexp.MustCompile(`\b((?:copilot|rpc_server|process|gen_ai_client)_[a-z_]+)(?:\{([^}]*)\})?`)

// matcher is a condition on a label.
var matcher = regexp.MustCompile(`([a-z_]+)(?:=~|!=|=)"([^"]*)"`)

// grouping is a list of labels that a sum keeps.
var grouping = regexp.MustCompile(`by \(([a-z_, ]+)\)`)

// checkMonitoring checks that the page has what the files of deploy/monitoring use: figures, labels and values of labels.
func checkMonitoring(t *testing.T, page string) {
	t.Helper()
	have := families(page)
	labels := []string{"job", "instance", "le"} // of Prometheus
	for _, f := range have {
		labels = append(labels, f.labels...)
	}
	for _, file := range []string{"dashboard.json", "rules.yaml"} {
		data, err := os.ReadFile(filepath.Join("..", "..", "deploy", "monitoring", file))
		if err != nil {
			t.Fatal(err)
		}
		text := strings.ReplaceAll(string(data), `\"`, `"`) // of JSON
		uses := used.FindAllStringSubmatch(text, -1)
		if len(uses) < 20 {
			t.Errorf("%s uses %d figures", file, len(uses))
		}
		for _, use := range uses {
			name := use[1]
			for _, part := range []string{"_bucket", "_sum", "_count"} {
				if whole := strings.TrimSuffix(name, part); have[whole].kind == "histogram" {
					name = whole
				}
			}
			if !strings.Contains(page, "# TYPE "+name+" ") {
				t.Errorf("%s: there is no figure %s", file, use[1])
			}
			for _, m := range matcher.FindAllStringSubmatch(use[2], -1) {
				checkMatcher(t, file, have[name], name, m[1], m[2])
			}
		}
		for _, list := range grouping.FindAllStringSubmatch(text, -1) {
			for label := range strings.SplitSeq(list[1], ", ") {
				if !slices.Contains(labels, label) {
					t.Errorf("%s sums by %s, which no figure has", file, label)
				}
			}
		}
	}
}

func checkMatcher(t *testing.T, file string, f family, name, label, values string) {
	t.Helper()
	if label == "job" || label == "instance" {
		return
	}
	if !slices.Contains(f.labels, label) {
		t.Errorf("%s: %s has no label %s", file, name, label)
		return
	}
	for value := range strings.SplitSeq(values, "|") {
		_, ends := bridgev1.TurnStatus_value["TURN_STATUS_"+strings.ToUpper(value)]
		_, answered := bridgev1.CallbackOutcome_value["CALLBACK_OUTCOME_"+strings.ToUpper(value)]
		switch {
		case label == "status" && !ends, label == "outcome" && !answered && value != "overflow":
			t.Errorf("%s: %s is never %s", file, label, value)
		}
	}
}
