//go:build xds

package cli

import _ "github.com/copilot-grpc/copilot-grpc/clients/go/copilotxds" // takes xds targets
