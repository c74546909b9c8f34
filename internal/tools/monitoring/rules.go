package main

import (
	"bytes"
	"fmt"

	"go.yaml.in/yaml/v3"
)

// objective is the share of turns that may end badly.
const objective = 0.01

// enough is the number of turns in a window below which their share says nothing.
const enough = 20

// burn is a pair of windows and how many times faster than allowed the budget of 30 days is used up in both when an alert
// is due, as in "The Site Reliability Workbook", chapter 5.
type burn struct {
	long, short string
	factor      float64
	wait        string
	severity    string
}

var burns = []burn{
	{"1h", "5m", 14.4, "2m", "critical"},
	{"6h", "30m", 6, "15m", "critical"},
	{"1d", "2h", 3, "1h", "warning"},
	{"3d", "6h", 1, "3h", "warning"},
}

// rule is a recording rule or an alert.
type rule struct {
	Record      string            `yaml:"record,omitempty"`
	Alert       string            `yaml:"alert,omitempty"`
	Expr        string            `yaml:"expr"`
	For         string            `yaml:"for,omitempty"`
	Labels      map[string]string `yaml:"labels,omitempty"`
	Annotations map[string]string `yaml:"annotations,omitempty"`
}

type group struct {
	Name  string `yaml:"name"`
	Rules []rule `yaml:"rules"`
}

// alert is an alert with what it says to a person: what is the matter, and what to do.
func alert(name, severity, wait, expr, summary, remedy string) rule {
	return rule{
		Alert: name, Expr: expr, For: wait, Labels: map[string]string{"severity": severity},
		Annotations: map[string]string{"summary": summary, "description": remedy},
	}
}

func turnGroup() group {
	g := group{Name: "copilot-grpc-turns"}
	for _, window := range []string{"5m", "30m", "1h", "2h", "6h", "1d", "3d"} {
		ended := fmt.Sprintf(`increase(copilot_turns_total[%s])`, window)
		bad := fmt.Sprintf(`increase(copilot_turns_total{status=~"failed|stalled|runtime_lost"}[%s])`, window)
		g.Rules = append(g.Rules,
			rule{Record: "copilot:turns:increase" + window, Expr: "sum by (job) (" + ended + ")"},
			rule{Record: "copilot:turns_bad:ratio" + window, Expr: fmt.Sprintf("(sum by (job) (%s) or 0 * copilot:turns:increase%s) / (copilot:turns:increase%[2]s > 0)", bad, window)})
	}
	for _, b := range burns {
		expr := fmt.Sprintf("copilot:turns_bad:ratio%s > %.4g and copilot:turns_bad:ratio%s > %.4[2]g and copilot:turns:increase%[1]s >= %[4]d",
			b.long, b.factor*objective, b.short, enough)
		name := "CopilotTurnsEndBadly"
		a := alert(name, b.severity, b.wait, expr, fmt.Sprintf("{{ $value | humanizePercentage }} of the turns of %s end badly; %v %% may", b.long, objective*100),
			"The server's log has the error of each such turn. Failed turns are errors of the model or its provider; stalled ones and lost processes are the CLI's.")
		a.Labels["window"] = b.long
		g.Rules = append(g.Rules, a)
	}
	return g
}

func alerts() []group {
	return []group{turnGroup(), {"copilot-grpc", []rule{
		alert("CopilotServerDown", "critical", "2m", `up{job=~".*copilot.*"} == 0`,
			"{{ $labels.instance }} cannot be scraped",
			"The server has ended, or its admin listener does not answer: look at its log and at /healthz."),
		alert("CopilotNoCLI", "critical", "2m", `sum by (job, instance) (copilot_runtimes{state="broken"}) > 0`,
			"the CLI ends again and again on {{ $labels.instance }}",
			"The circuit breaker is open, and turns fail at once. `copilot-grpc runtimes list` and the log have the reason; `copilot-grpc doctor` checks the installation."),
		alert("CopilotCLICrashes", "warning", "5m", `sum by (job, instance) (increase(copilot_runtime_ends_total{restart="true"}[15m])) >= 3`,
			"{{ $value | humanize }} CLI processes have ended unexpectedly in 15 minutes on {{ $labels.instance }}",
			"Running turns are lost with them. The log has the exit status and the last lines of stderr."),
		alert("CopilotCallbacksTimeOut", "warning", "10m",
			`sum by (job) (increase(copilot_callbacks_total{outcome=~"timed_out|unhandled|overflow"}[30m])) / (sum by (job) (increase(copilot_callbacks_total[30m])) >= 20) > 0.1`,
			"{{ $value | humanizePercentage }} of the callbacks get no answer",
			"Agents go on without their tools or are refused. Check that the programs that answer are connected: `copilot-grpc inbox` shows what waits."),
		alert("CopilotNobodyAnswers", "warning", "15m",
			`sum by (job, instance) (copilot_callbacks_pending) > 0 and sum by (job, instance) (copilot_participants) + sum by (job, instance) (copilot_callbacks_handlers) == 0`,
			"callbacks wait on {{ $labels.instance }}, and nobody is connected who could answer",
			"They get their default answers when their time is up. `copilot-grpc inbox` answers them."),
		alert("CopilotStorageSlow", "warning", "2m", `sum by (job, instance) (copilot_journal_unwritten_bytes) > 8 * 1024 * 1024`,
			"{{ $value | humanize1024 }}B of events wait for the disk on {{ $labels.instance }}",
			"The disk is slow, full or broken; events stay in memory meanwhile. `storage_problem` of the sessions and the log have the cause."),
		alert("CopilotEventsLost", "critical", "0m", `sum by (job, instance) (increase(copilot_events_dropped_total{reason="unwritten"}[10m])) > 0`,
			"events were dropped on {{ $labels.instance }} because the disk does not take them",
			"Readers are told of the gap. Mend the disk: the log has its error."),
		alert("CopilotAuditLost", "critical", "0m", `sum by (job, instance) (increase(copilot_audit_entries_total{result=~"dropped|failed"}[10m])) > 0`,
			"entries of the audit log are missing on {{ $labels.instance }}",
			"The log could not be written, or not as fast as calls came. The next line in it says how many are missing."),
		alert("CopilotLimitReached", "info", "15m", `sum by (job, limit) (rate(copilot_refused_total[15m])) > 0.1`,
			"calls are refused by the limit {{ $labels.limit }}",
			"The limits are in the policy file; `copilot-grpc usage` shows who uses how much."),
		alert("CopilotInternalErrors", "warning", "10m",
			`sum by (job) (rate(rpc_server_call_duration_seconds_count{rpc_response_status_code=~"INTERNAL|UNKNOWN|DATA_LOSS"}[10m])) / (sum by (job) (rate(rpc_server_call_duration_seconds_count[10m])) > 0.1) > 0.01`,
			"{{ $value | humanizePercentage }} of the calls fail with internal errors",
			"That is a fault of the server: the log has the error, with its trace id."),
	}}}
}

// rulesYAML is the file that Prometheus loads.
func rulesYAML() ([]byte, error) {
	var out bytes.Buffer
	out.WriteString("# Made by internal/tools/monitoring: make generate.\n")
	e := yaml.NewEncoder(&out)
	e.SetIndent(2)
	if err := e.Encode(map[string][]group{"groups": alerts()}); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}
