package cli

import (
	"slices"

	"github.com/copilot-grpc/copilot-grpc/internal/app"
)

// otlpVariables are OpenTelemetry's standard variables, which enable OTLP.
var otlpVariables = []string{"OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT",
	"OTEL_EXPORTER_OTLP_METRICS_ENDPOINT"}

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
