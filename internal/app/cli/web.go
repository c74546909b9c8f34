package cli

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"rsc.io/qr"

	copilot "github.com/copilot-grpc/copilot-grpc/clients/go"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
)

const webUsage = `Prints a link by which one browser logs in to a running server, and the same as a QR code for a
phone. The login has the rights of this command's user, or of the token's, and at most the role. The server needs a
listener for browsers (serve --web); other devices reach one with TLS and a policy only.

  copilot-grpc web link --role observer --ttl 5m`

func setupWebLink(p *program, f *flags) action {
	c := p.connection(f)
	name := f.String("role", "", "highest `role` of the login: observer, participant, owner or admin (default: your own)")
	ttl := f.Duration("ttl", 10*time.Minute, "time for which the link can be used, at most 24h")
	asQR := f.Bool("qr", false, "print the QR code also if the output is no terminal")
	return func(ctx context.Context, _ []string) error {
		role, ok := bridgev1.Role_value["ROLE_"+strings.ToUpper(*name)]
		if *name != "" && (!ok || role == 0) {
			return usageError{fmt.Errorf("role: %q is none of observer, participant, owner, admin", *name)}
		}
		return c.with(ctx, func(client *copilot.Client) error {
			made, err := client.Runtimes().CreateWebLink(ctx, &bridgev1.CreateWebLinkRequest{
				Role: bridgev1.Role(role), Ttl: durationpb.New(*ttl)})
			if err != nil {
				return err
			}
			_, err = fmt.Fprintln(p.stdout, made.GetUrl())
			if err == nil && (*asQR || isTerminal(p.stdout)) {
				err = printQR(p.stdout, made.GetUrl())
			}
			return err
		})
	}
}

// quiet is the width of the white border of a QR code, in modules.
const quiet = 2

// printQR prints a text as a QR code: black on white, two rows of modules in each line.
func printQR(w io.Writer, text string) error {
	code, err := qr.Encode(text, qr.L)
	if err != nil {
		return err
	}
	blocks := map[[2]bool]string{{false, false}: " ", {true, false}: "▀", {false, true}: "▄", {true, true}: "█"}
	var out strings.Builder
	for y := -quiet; y < code.Size+quiet; y += 2 {
		out.WriteString("\x1b[30;107m")
		for x := -quiet; x < code.Size+quiet; x++ {
			out.WriteString(blocks[[2]bool{code.Black(x, y), code.Black(x, y+1)}])
		}
		out.WriteString("\x1b[0m\n")
	}
	_, err = io.WriteString(w, out.String())
	return err
}
