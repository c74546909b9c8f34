package app

import (
	"context"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"

	"github.com/copilot-grpc/copilot-grpc/bridge/runtime"
	"github.com/copilot-grpc/copilot-grpc/server/identity"
	"github.com/copilot-grpc/copilot-grpc/server/policy"
)

const (
	// providerTimeout bounds the check whether a model provider can be reached.
	providerTimeout = 5 * time.Second
	// expirySoon is how long before the end of a certificate doctor warns.
	expirySoon = 14 * 24 * time.Hour
)

func warn(subject, text, remedy string) runtime.Finding {
	return runtime.Finding{Level: runtime.LevelWarning, Subject: subject, Text: text, Remedy: remedy}
}

// providerFinding tells whether the address of a model provider can be reached. It sends no secrets.
func (c *Config) providerFinding(ctx context.Context, name string, text []byte) runtime.Finding {
	subject, path := "provider "+name, c.Providers[name]
	var provider struct {
		BaseURL string `json:"baseUrl"`
	}
	if json.Unmarshal(text, &provider) != nil || provider.BaseURL == "" {
		return fine(subject, "%q is a JSON object", path)
	}
	u, err := url.Parse(provider.BaseURL)
	if err != nil || u.Host == "" {
		return warn(subject, fmt.Sprintf("baseUrl in %q is not a URL", path), "correct baseUrl in the file")
	}
	bare := (&url.URL{Scheme: u.Scheme, Host: u.Host, Path: u.Path}).String() // the rest may have secrets
	ctx, cancel := context.WithTimeout(ctx, providerTimeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodHead, bare, nil)
	if err != nil {
		return warn(subject, err.Error(), "correct baseUrl in "+path)
	}
	response, err := http.DefaultTransport.RoundTrip(request)
	if err != nil {
		return warn(subject, fmt.Sprintf("%s: %v", bare, err), fmt.Sprintf("let this machine reach it (firewall, "+
			"HTTPS_PROXY), or correct baseUrl in %q", path))
	}
	_ = response.Body.Close()
	return fine(subject, "%s answers", bare)
}

// policyFindings tell about a policy, the permissions of its files, its issuers and its tenants.
func (c *Config) policyFindings(ctx context.Context, out *checked) []runtime.Finding {
	found := []runtime.Finding{fine("policy", "%q is valid; number of tenants: %d", c.Policy, out.policy.Size())}
	found = append(found, c.permissionFindings(policyPaths(out.policy))...)
	for _, issuer := range out.policy.Issuers() {
		found = append(found, issuerFinding(ctx, out.policy, issuer))
	}
	for _, name := range out.policy.Tenants() {
		t, _ := out.policy.Tenant(name)
		found = append(found, tenantFindings(name, t)...)
	}
	return found
}

// tenantFindings tell whether the CLI processes of a tenant can be started as the policy says.
func tenantFindings(name string, t policy.Tenant) (found []runtime.Finding) {
	subject := "tenant " + name
	if len(t.Sandbox) > 0 && !strings.Contains(t.Sandbox[0], "{") {
		if _, err := exec.LookPath(t.Sandbox[0]); err != nil {
			found = append(found, failed(subject, fmt.Errorf("sandbox: %w", err), "install the program, or correct sandbox of "+
				"the tenant in the policy"))
		}
	}
	if own := os.Geteuid(); t.User != nil && own != 0 && int(t.User.UID) != own {
		found = append(found, warn(subject, fmt.Sprintf("its CLI processes are those of the user %d, and this user, %d, may "+
			"not start them", t.User.UID, own), "run the server as root, or with the capabilities SETUID, SETGID and CHOWN"))
	}
	return found
}

// issuerFinding tells whether an issuer's configuration and keys can be fetched, and browsers can log in there.
func issuerFinding(ctx context.Context, p *policy.Policy, issuer *identity.OIDC) runtime.Finding {
	const subject = "issuer"
	if err := issuer.Reach(ctx); err != nil {
		return failed(subject, err, "correct identity.oidc in the policy, or let this machine reach the issuer: until "+
			"then its tokens are refused")
	}
	if flow := p.Flow(issuer.URL()); flow != nil {
		if _, err := flow.Begin(ctx, identity.Attempt{}); err != nil {
			return failed(subject, fmt.Errorf("%q: %w", issuer.URL(), err), "remove login from the issuer in the policy, or "+
				"let the issuer offer the authorization code flow")
		}
	}
	return fine(subject, "%q answers, and its keys can be read", issuer.URL())
}

// certificateFindings tell about the server's certificate, and the files by which clients are checked.
func (c *Config) certificateFindings(_ context.Context, out *checked) []runtime.Finding {
	now := time.Now()
	found := []runtime.Finding{out.serverFinding(c.TLSCert, now)}
	for _, file := range []struct{ setting, path string }{
		{"tls_client_ca", c.TLSClientCA}, {"tls_client_crl", c.TLSClientCRL},
	} {
		if file.path != "" {
			found = append(found, dateFinding(file.setting, file.path, now))
		}
	}
	return found
}

// serverFinding tells whether clients can trust the server's certificate.
func (out *checked) serverFinding(path string, now time.Time) runtime.Finding {
	const subject = "tls_cert"
	config, _, err := out.certificates.Load()
	if err != nil {
		return failed(subject, err, "")
	}
	dates := dateFinding(subject, path, now)
	var chain []*x509.Certificate
	for _, der := range config.Certificates[0].Certificate {
		cert, err := x509.ParseCertificate(der)
		if err != nil {
			return failed(subject, err, "replace the file")
		}
		chain = append(chain, cert)
	}
	leaf, between, last := chain[0], x509.NewCertPool(), x509.NewCertPool()
	for _, cert := range chain[1:] {
		between.AddCert(cert)
	}
	last.AddCert(chain[len(chain)-1])
	_, err = leaf.Verify(x509.VerifyOptions{Roots: last, Intermediates: between, CurrentTime: now})
	names := slices.Clone(leaf.DNSNames)
	for _, ip := range leaf.IPAddresses {
		names = append(names, ip.String())
	}
	switch {
	case dates.Level == runtime.LevelError:
		return dates
	case err != nil:
		return failed(subject, fmt.Errorf("%q: %w", path, err), "put a certificate for TLS servers into the file, and after "+
			"it the certificates that signed it")
	case len(names) == 0:
		return failed(subject, fmt.Errorf("%q has no names, so that clients refuse it", path),
			"issue it with the names of the server (subjectAltName)")
	case dates.Level == runtime.LevelWarning:
		return dates
	}
	text := fmt.Sprintf("%s, for %s", dates.Text, strings.Join(names, ", "))
	if _, err := leaf.Verify(x509.VerifyOptions{Intermediates: between}); err != nil {
		text += fmt.Sprintf("; clients need its CA, %q (--tls-ca)", chain[len(chain)-1].Issuer)
	}
	return fine(subject, "%s", text)
}

// dateFinding tells until when the certificates and revocation lists in the file of a setting are valid.
func dateFinding(setting, path string, now time.Time) runtime.Finding {
	text, err := os.ReadFile(path)
	if err != nil {
		return failed(setting, err, "correct the setting")
	}
	certificates, lists, err := parseDated(text)
	if err != nil || len(certificates)+len(lists) == 0 {
		return failed(setting, fmt.Errorf("%q has no certificate or revocation list that can be read: %w", path, err),
			"replace the file")
	}
	var begins, ends []time.Time
	soon := time.Duration(0) // lists are replaced shortly before their end
	for _, list := range lists {
		begins, ends = append(begins, list.ThisUpdate), append(ends, list.NextUpdate)
	}
	for _, cert := range certificates {
		soon, begins, ends = expirySoon, append(begins, cert.NotBefore), append(ends, cert.NotAfter)
	}
	from, to := slices.MaxFunc(begins, time.Time.Compare), slices.MinFunc(ends, time.Time.Compare)
	switch {
	case now.Before(from):
		return failed(setting, fmt.Errorf("%q is not valid before %s", path, from.Format(time.RFC3339)),
			"correct the clock of this machine, or replace the file")
	case now.After(to):
		return failed(setting, fmt.Errorf("%q has expired at %s", path, to.Format(time.RFC3339)), renew)
	case now.Add(soon).After(to):
		return warn(setting, fmt.Sprintf("%q expires at %s", path, to.Format(time.RFC3339)), renew)
	}
	return fine(setting, "%q is valid until %s", path, to.Format(time.RFC3339))
}

// parseDated returns the certificates of a file in PEM, and of each CA its latest revocation list, in PEM or DER.
func parseDated(text []byte) (certificates []*x509.Certificate, lists map[string]*x509.RevocationList, err error) {
	lists = map[string]*x509.RevocationList{}
	addList := func(der []byte) {
		list, wrong := x509.ParseRevocationList(der)
		if err = errors.Join(err, wrong); wrong != nil {
			return
		}
		if before := lists[string(list.RawIssuer)]; before == nil || list.ThisUpdate.After(before.ThisUpdate) {
			lists[string(list.RawIssuer)] = list
		}
	}
	block, rest := pem.Decode(text)
	if block == nil {
		addList(text)
	}
	for ; block != nil; block, rest = pem.Decode(rest) {
		switch block.Type {
		case "CERTIFICATE":
			cert, wrong := x509.ParseCertificate(block.Bytes)
			certificates, err = append(certificates, cert), errors.Join(err, wrong)
		case "X509 CRL":
			addList(block.Bytes)
		}
	}
	return certificates, lists, err
}

// renew is the remedy of a file that expires.
const renew = "renew it; a running server reloads the file when it changes"
