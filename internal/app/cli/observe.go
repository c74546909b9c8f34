package cli

import (
	"slices"

	"github.com/copilot-grpc/copilot-grpc/internal/app"
)

// observeFlags adds the flags that say how the server is looked at.
func observeFlags(f *flags, c *app.Config) {
	f.StringVar(&c.AdminListen, "admin-listen", "", "`address` of the admin listener (health, readiness, metrics, profiles, channelz): unix:PATH or HOST:PORT, which has to be loopback; none by default")
	f.BoolVar(&c.AdminWide, "admin-wide", false, "let the admin listener be reached from elsewhere; nobody is asked who he is there")
	f.StringVar(&c.OTLPEndpoint, "otlp-endpoint", "", "`URL` to send spans and metrics to by OTLP (default: that of OTEL_EXPORTER_OTLP_ENDPOINT; without either, nothing is sent)")
	f.StringVar(&c.OTLPProtocol, "otlp-protocol", "", "`protocol` of OTLP: grpc, http/protobuf (default: that of OTEL_EXPORTER_OTLP_PROTOCOL, or http/protobuf)")
	f.StringVar(&c.AuditLog, "audit-log", "", "`file` to which is appended who did what, or \""+app.AuditStderr+"\"; none by default")
}

// otlpVariables switch OTLP on, as they do for everybody who follows OpenTelemetry.
var otlpVariables = []string{"OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT"}

// observeEnv takes over what OpenTelemetry's variables say that its own packages do not read.
func observeEnv(p *program, c *app.Config) {
	set := func(name string) bool { return p.getenv(name) != "" }
	if p.getenv("OTEL_SDK_DISABLED") == "true" {
		return
	}
	c.OTLP = c.OTLP || slices.ContainsFunc(otlpVariables, set)
	if c.OTLPProtocol == "" {
		c.OTLPProtocol = p.getenv("OTEL_EXPORTER_OTLP_PROTOCOL")
	}
}
