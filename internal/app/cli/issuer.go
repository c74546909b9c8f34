package cli

import (
	"context"
	"fmt"

	"github.com/copilot-grpc/copilot-grpc/internal/devissuer"
)

const issuerUsage = `Runs an OpenID Connect issuer on a loopback address, to try out policies. It gives every caller a
token with the requested claims, and logs every browser in as whom it wants. Do not use it for anything else.

  curl 'http://127.0.0.1:5556/token?audience=copilot-grpc&subject=ann&groups=acme&lifetime=1h'`

func setupIssuer(p *program, f *flags) action {
	address := f.String("address", "127.0.0.1:5556", "`address` to listen on, HOST:PORT, on the loopback interface")
	return func(ctx context.Context, _ []string) error {
		i, err := devissuer.New(ctx, *address)
		if err != nil {
			return err
		}
		fmt.Fprintf(p.stderr, "issuer: %s (for trials: it gives tokens to every local caller)\n", i.URL())
		return i.Run(ctx)
	}
}
