package cli

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	copilot "github.com/copilot-grpc/copilot-grpc/clients/go"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
)

const serverUsage = `Prints the version, the health, the CLI and the limits of the server, and who you are to it; with -o
json everything.

  copilot-grpc server
  copilot-grpc server -o json

health is SERVING, or NOT_SERVING while the server cannot work or is about to stop. "you" has your name, your role and
your tenant, "known by" how the server knows you, and "allowed" the classes of calls that you may make.`

func setupServer(p *program, f *flags) action {
	c := p.connection(f)
	out := p.printer(f)
	return func(ctx context.Context, _ []string) error {
		return c.with(ctx, func(client *copilot.Client) error {
			info, err := client.ServerInfo(ctx)
			if err != nil {
				return err
			}
			health, err := healthpb.NewHealthClient(client.Conn()).Check(ctx, &healthpb.HealthCheckRequest{})
			if err != nil {
				return err
			}
			state := health.GetStatus().String()
			fields := append(serverFields(c.server.Target, state, info), callerFields(info.GetCaller())...)
			return out.record(fields,
				members{{"target", c.server.Target}, {"health", state}, {"info", info}})
		})
	}
}

func serverFields(target, health string, info *bridgev1.GetServerInfoResponse) []field {
	can, l := info.GetCapabilities(), info.GetLimits()
	var features []string
	for _, one := range []struct {
		name string
		has  bool
	}{
		{"raw calls", can.GetRawService()}, {"own CLI processes", can.GetOwnRuntimes()},
		{"durable journal", can.GetDurableJournal()}, {"offline model", can.GetOfflineModel()},
	} {
		if one.has {
			features = append(features, one.name)
		}
	}
	fields := []field{
		{"target", target}, {"health", health}, {"version", info.GetVersion()}, {"CLI version", info.GetCliVersion()},
		{"tested CLI", info.GetCliVersionMin() + " to " + info.GetCliVersionMax()},
		{"warnings", strings.Join(info.GetCliWarnings(), " ")}, {"features", strings.Join(features, ", ")},
		{"profile fields", strings.Join(can.GetRuntimeProfileFields(), ", ")},
		{"profile homes", strings.Join(can.GetHomeNames(), ", ")},
		{"CLI processes", fmt.Sprintf("at most %d, each with at most %d sessions", l.GetMaxRuntimes(),
			l.GetMaxSessionsPerRuntime())},
		{"prompt", "at most " + sizeText(l.GetMaxPromptBytes())},
		{"request", "at most " + sizeText(l.GetMaxRequestBytes())},
		{"attachment", "at most " + sizeText(l.GetMaxAttachmentBytes())},
		{"callbacks", "wait for " + l.GetCallbackTimeout().AsDuration().String()},
		{"connection", fmt.Sprintf("at most %d calls at once, %d of them streams", l.GetMaxConnectionCalls(),
			l.GetMaxConnectionStreams())},
	}
	if age := l.GetMaxConnectionAge(); age != nil {
		fields = append(fields, field{"connection age", "at most " + age.AsDuration().Round(time.Second).String()})
	}
	return fields
}

// callerFields are what people want to know of themselves; none if the server does not tell.
func callerFields(who *bridgev1.CallerInfo) []field {
	if who == nil {
		return nil
	}
	known := cmp.Or(proofTexts[who.GetProof()], enumText(who.GetProof(), "CALLER_PROOF_"))
	if who.GetIssuer() != "" {
		known += " of " + who.GetIssuer()
	}
	if who.GetWebLogin() {
		known = "a browser's login with " + known
	}
	var classes []string
	for _, class := range who.GetCallClasses() {
		classes = append(classes, enumText(class, "CALL_CLASS_"))
	}
	allowed := strings.Join(classes, ", ")
	if who.GetConfined() {
		allowed += "; a sandbox confines the sessions"
	}
	return []field{
		{"you", fmt.Sprintf("%s, %s of the tenant %s", who.GetName(), enumText(who.GetRole(), "ROLE_"), who.GetTenant())},
		{"known by", known}, {"allowed", allowed}, {"until", timeText(who.GetExpireTime())},
	}
}

var proofTexts = map[bridgev1.CallerProof]string{
	bridgev1.CallerProof_CALLER_PROOF_SOCKET:       "the unix socket",
	bridgev1.CallerProof_CALLER_PROOF_SERVER_TOKEN: "the server's token",
	bridgev1.CallerProof_CALLER_PROOF_STATIC_TOKEN: "a token of the policy",
	bridgev1.CallerProof_CALLER_PROOF_JWT:          "a JSON web token",
	bridgev1.CallerProof_CALLER_PROOF_CERTIFICATE:  "a client certificate",
}

// enumText is the name of an enum's value without the prefix of its type.
func enumText(value fmt.Stringer, prefix string) string {
	return strings.ToLower(strings.TrimPrefix(value.String(), prefix))
}

// sizeText is a number of bytes for people.
func sizeText(bytes int64) string {
	for _, unit := range []struct {
		size int64
		name string
	}{{1 << 30, "GiB"}, {1 << 20, "MiB"}, {1 << 10, "KiB"}} {
		if bytes >= unit.size {
			return strings.TrimSuffix(fmt.Sprintf("%.1f", float64(bytes)/float64(unit.size)), ".0") + " " + unit.name
		}
	}
	return fmt.Sprintf("%d bytes", bytes)
}
