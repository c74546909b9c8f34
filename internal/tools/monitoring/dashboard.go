package main

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/grafana/grafana-foundation-sdk/go/common"
	"github.com/grafana/grafana-foundation-sdk/go/dashboard"
	"github.com/grafana/grafana-foundation-sdk/go/prometheus"
	"github.com/grafana/grafana-foundation-sdk/go/timeseries"
	"github.com/grafana/grafana-foundation-sdk/go/units"
)

// selector limits a query to the chosen servers.
const selector = `{job=~"$job",instance=~"$instance"}`

// panel is a panel of the dashboard.
type panel struct {
	title, about string
	unit         string
	queries      []query
}

// query is what a panel asks Prometheus for. The legend may name labels.
type query struct{ legend, expr string }

// exemplars reports whether the query has examples: the traces of slow turns, for instance.
func (q query) exemplars() bool { return strings.HasPrefix(q.expr, "histogram_quantile(") }

// rate is a counter's rate, by a label if there is one.
func rate(metric, by string) string {
	return sum(`rate(`+metric+selector+`[$__rate_interval])`, by)
}

// gauge is the sum of a gauge, by a label if there is one.
func gauge(metric, by string) string { return sum(metric+selector, by) }

// sum leaves out the values of a label whose sum is zero: most kinds of callbacks never come up.
func sum(expr, by string) string {
	if by == "" {
		return `sum(` + expr + `)`
	}
	return `sum by (` + by + `) (` + expr + `) > 0`
}

// quantiles are the quantiles of a histogram.
func quantiles(metric string) (all []query) {
	for _, percent := range []int{50, 95, 99} {
		all = append(all, query{fmt.Sprint("p", percent), fmt.Sprintf(`histogram_quantile(0.%d, sum by (le) (rate(%s_bucket%s[$__rate_interval])))`, percent, metric, selector)})
	}
	return all
}

// rows are the panels by what they are about. An operator reads them from the top: is work done, does anybody wait, is
// the server at its limits.
var rows = []struct {
	title  string
	panels []panel
}{
	{"Turns", []panel{
		{"Turns by how they end", "Failed: the model or the CLI reported an error. Stalled: the CLI went silent. Runtime lost: its process ended.",
			units.OpsPerSecond, []query{{"{{status}}", rate("copilot_turns_total", "status")}}},
		{"Running turns and sessions", "", units.Short, []query{
			{"turns", gauge("copilot_turns_running", "")}, {"sessions {{state}}", gauge("copilot_sessions", "state")}}},
		{"Duration of turns", "", units.Seconds, quantiles("copilot_turn_duration_seconds")},
		{"Turns that end badly", "The share of turns that end failed, stalled or with their process. The objective is 1 %.", units.PercentUnit, []query{
			{"5 m", `copilot:turns_bad:ratio5m{job=~"$job"}`}, {"1 h", `copilot:turns_bad:ratio1h{job=~"$job"}`}, {"6 h", `copilot:turns_bad:ratio6h{job=~"$job"}`}}},
	}},
	{"Callbacks", []panel{
		{"Callbacks that wait", "Tool calls, permissions and questions without an answer.", units.Short, []query{
			{"{{kind}}", gauge("copilot_callbacks_pending", "kind")}}},
		{"Callbacks by how they end", "Timed out: nobody answered in time. Unhandled: nobody handles the kind. Overflow: too many waited.",
			units.OpsPerSecond, []query{{"{{outcome}}", rate("copilot_callbacks_total", "outcome")}}},
		{"Time until the answer", "", units.Seconds, quantiles("copilot_callback_duration_seconds")},
		{"Who answers", "", units.Short, []query{
			{"participants", gauge("copilot_participants", "")}, {"callers of WatchPending", gauge("copilot_callbacks_handlers", "")}}},
	}},
	{"Models and tenants", []panel{
		{"Tokens by model", "A second. Other: models without a label of their own.", units.Short, []query{
			{"{{gen_ai_request_model}} {{gen_ai_token_type}}", rate("gen_ai_client_token_usage_sum", "gen_ai_request_model, gen_ai_token_type")}}},
		{"Duration of model calls", "", units.Seconds, quantiles("gen_ai_client_operation_duration_seconds")},
		{"Model calls that fail", "By model and HTTP status. The CLI repeats some of them.", units.OpsPerSecond, []query{{"{{gen_ai_request_model}} {{error_type}}",
			`sum by (gen_ai_request_model, error_type) (rate(gen_ai_client_operation_duration_seconds_count{job=~"$job",instance=~"$instance",error_type!=""}[$__rate_interval])) > 0`}}},
		{"Tokens by tenant", "A second, for the tenants of metrics_by_tenant. Other: all the rest.", units.Short, []query{{"{{tenant}}", rate("copilot_tenant_tokens_total", "tenant")}}},
		{"Turns by tenant", "", units.OpsPerSecond, []query{{"{{tenant}}", rate("copilot_tenant_turns_total", "tenant")}}},
		{"Sessions by tenant", "", units.Short, []query{{"{{tenant}}", gauge("copilot_tenant_sessions", "tenant")}}},
	}},
	{"Calls", []panel{
		{"Calls by result", "", units.OpsPerSecond, []query{
			{"{{rpc_response_status_code}}", rate("rpc_server_call_duration_seconds_count", "rpc_response_status_code")}}},
		{"Errors by method", "", units.OpsPerSecond, []query{{"{{rpc_method}} {{rpc_response_status_code}}",
			`sum by (rpc_method, rpc_response_status_code) (rate(rpc_server_call_duration_seconds_count{job=~"$job",instance=~"$instance",rpc_response_status_code!="OK"}[$__rate_interval])) > 0`}}},
		{"Streams", "", units.Short, []query{{"{{method}}", gauge("copilot_streams", "method")}}},
		{"Refusals by limit", "The limits are those of the policy file.", units.OpsPerSecond, []query{{"{{limit}}", rate("copilot_refused_total", "limit")}}},
	}},
	{"CLI processes", []panel{
		{"Versions", "Servers by their version and that of their CLI.", units.Short, []query{
			{"{{version}}, CLI {{cli_version}}", gauge("copilot_build_info", "version, cli_version")}}},
		{"Processes", "Broken: the circuit breaker is open, since the CLI ends again and again.", units.Short, []query{{"{{state}}", gauge("copilot_runtimes", "state")}}},
		{"Ends of processes", "", units.OpsPerSecond, []query{{"{{reason}}", rate("copilot_runtime_ends_total", "reason")}}},
		{"Memory", "Of the CLI processes together, and of the server.", units.BytesIEC, []query{
			{"CLI processes", gauge("copilot_runtimes_memory_bytes", "")}, {"server", gauge("process_resident_memory_bytes", "")}}},
		{"Calls, requests and their queue", "", units.Short, []query{
			{"calls to the CLI", gauge("copilot_cli_calls", "")}, {"requests of the CLI", gauge("copilot_cli_requests", "")}, {"queued bytes", gauge("copilot_cli_queue_bytes", "")}}},
	}},
	{"Events and storage", []panel{
		{"Events", "Received from the CLI, and dropped by reason. Second copies are dropped as a rule.", units.OpsPerSecond, []query{
			{"received", rate("copilot_events_total", "")}, {"dropped: {{reason}}", rate("copilot_events_dropped_total", "reason")}}},
		{"Gaps", "That readers were told, because they were slow or the journal was trimmed.", units.OpsPerSecond, []query{{"gaps", rate("copilot_gaps_total", "")}}},
		{"Journals", "Unwritten: events that wait for the disk.", units.BytesIEC, []query{
			{"on disk", gauge("copilot_journal_stored_bytes", "")}, {"in memory", gauge("copilot_journal_memory_bytes", "")}, {"unwritten", gauge("copilot_journal_unwritten_bytes", "")}}},
		{"Audit log", "", units.OpsPerSecond, []query{{"{{result}}", rate("copilot_audit_entries_total", "result")}}},
	}},
}

// dashboardJSON is the dashboard as Grafana imports it.
func dashboardJSON() ([]byte, error) {
	source := common.DataSourceRef{Type: new("prometheus"), Uid: new("$datasource")}
	servers := func(name, label, of string) *dashboard.QueryVariableBuilder {
		text := "label_values(copilot_turns_running" + of + ", " + name + ")"
		return dashboard.NewQueryVariableBuilder(name).Label(label).Datasource(source).
			Query(dashboard.StringOrMap{String: &text}).Multi(true).IncludeAll(true).AllValue(".*").Refresh(dashboard.VariableRefreshOnTimeRangeChanged)
	}
	d := dashboard.NewDashboardBuilder("copilot-grpc").Uid("copilot-grpc").Tags([]string{"copilot-grpc"}).Readonly().
		Time("now-3h", "now").Refresh("30s").Tooltip(dashboard.DashboardCursorSyncCrosshair).
		WithVariable(dashboard.NewDatasourceVariableBuilder("datasource").Label("Prometheus").Type("prometheus")).
		WithVariable(servers("job", "Job", "")).WithVariable(servers("instance", "Server", `{job=~"$job"}`))
	for _, row := range rows {
		d.WithRow(dashboard.NewRowBuilder(row.title))
		for _, p := range row.panels {
			d.WithPanel(p.build(source))
		}
	}
	built, err := d.Build()
	if err != nil {
		return nil, err
	}
	data, err := json.MarshalIndent(built, "", "  ")
	return append(data, '\n'), err
}

func (p panel) build(source common.DataSourceRef) *timeseries.PanelBuilder {
	b := timeseries.NewPanelBuilder().Title(p.title).Description(p.about).Unit(p.unit).Min(0).Datasource(source).
		Span(12).Height(8).FillOpacity(8).ShowPoints(common.VisibilityModeNever)
	for _, q := range p.queries {
		b.WithTarget(prometheus.NewDataqueryBuilder().Expr(q.expr).LegendFormat(q.legend).Exemplar(q.exemplars()))
	}
	return b
}
