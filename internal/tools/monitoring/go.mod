// The Grafana dashboard and the Prometheus rules of deploy/monitoring, as code.
module github.com/copilot-grpc/copilot-grpc/internal/tools/monitoring

go 1.26.0

require (
	github.com/grafana/grafana-foundation-sdk/go v0.0.22
	go.yaml.in/yaml/v3 v3.0.6
)
