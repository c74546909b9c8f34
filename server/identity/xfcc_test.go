package identity

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"encoding/pem"
	"math/big"
	"net/url"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
)

// uris parses URIs of a certificate.
func uris(t *testing.T, texts ...string) (out []*url.URL) {
	t.Helper()
	for _, text := range texts {
		u, err := url.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, u)
	}
	return out
}

// shownAs makes a certificate, and returns it as proxies report it, with its hash.
func shownAs(t *testing.T, spiffe string, end time.Time, names ...string) (cert, hash string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	leaf := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: end, DNSNames: names}
	if spiffe != "" {
		leaf.URIs = uris(t, spiffe)
	}
	der, err := x509.CreateCertificate(rand.Reader, leaf, leaf, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256(der)
	text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	return url.PathEscape(string(text)), hex.EncodeToString(sum[:])
}

// A proxy's caller is the certificate in the last element of its header, if that can be read in one way only.
func TestForwardedCertificates(t *testing.T) {
	t.Parallel()
	proxyEnd := time.Now().Add(time.Hour).Truncate(time.Second).UTC()
	end := proxyEnd.Add(-time.Minute)
	a := Certificates{TrustDomains: []string{"corp.example"}, Now: time.Now,
		Proxies: []Proxy{{SPIFFE: "spiffe://corp.example/envoy"}, {DNS: "proxy.example"}}}
	envoy := &x509.Certificate{URIs: uris(t, "spiffe://corp.example/envoy"), NotAfter: proxyEnd}
	cert, hash := shownAs(t, "spiffe://corp.example/a", end, "a.example")
	later, _ := shownAs(t, "spiffe://corp.example/a", proxyEnd.Add(time.Hour))
	expired, _ := shownAs(t, "spiffe://corp.example/a", time.Now().Add(-time.Minute))
	const boss = "URI=spiffe://corp.example/boss"
	// named is what Envoy says of a certificate that has a name, and perhaps no SPIFFE id.
	named := func(spiffe, name string) string {
		text, _ := shownAs(t, spiffe, end, name)
		return `By=x;Cert="` + text + `";URI=` + spiffe + ";DNS=" + name
	}
	const uri, hashed = "URI=spiffe://corp.example/a", "By=spiffe://corp.example/envoy;Hash=ab;"
	spiffe := &Identity{Source: Certificate, SPIFFE: "spiffe://corp.example/a", Proxy: "spiffe://corp.example/envoy",
		Expires: proxyEnd}
	both := *spiffe
	both.DNS = []string{"a.example", "b.example"}
	dns := both
	dns.SPIFFE = ""
	full := *spiffe
	full.DNS, full.Expires = []string{"a.example"}, end
	for name, tc := range map[string]struct {
		header string
		want   *Identity
	}{
		"uri":             {uri, spiffe},
		"as Envoy":        {hashed + `Subject="CN=a, O=\"x\"";URI=spiffe://corp.example/a;DNS=a.example;DNS=b.example`, &both},
		"quoted":          {`uri="spiffe://corp.example/a"; by=x;BY=y`, spiffe},
		"DNS alone":       {hashed + "DNS=a.example;DNS=b.example;URI=", &dns},
		"cert":            {hashed[:strings.Index(hashed, "Hash")] + "Hash=" + hash + `;Cert="` + cert + `"`, &full},
		"cert and names":  {`Cert="` + cert + `";DNS=a.example;` + uri, &full},
		"cert that lasts": {`Cert="` + later + `"`, spiffe},
		"certs in both":   {named("", "b.example") + `,Cert="` + cert + `"`, &full},
		"the last of two": {"URI=spiffe://corp.example/b," + uri, spiffe},
		"after subjects":  {`Subject="CN=,;\"",` + uri, spiffe},

		"empty":                {"", nil},
		"no names":             {hashed + `Subject="CN=a"`, nil},
		"empty last":           {uri + ",", nil},
		"unknown key":          {uri + ";Role=admin", nil},
		"no value":             {"URI", nil},
		"two hashes":           {"Hash=a;Hash=b;" + uri, nil},
		"two SPIFFE ids":       {uri + ";URI=spiffe://corp.example/b", nil},
		"two URIs":             {uri + ";URI=https://x", nil},
		"malformed URI":        {"URI=spiffe://corp.example/%", nil},
		"other domain":         {"URI=spiffe://evil.example/a", nil},
		"climbing":             {"URI=spiffe://corp.example/a/../b", nil},
		"open quote":           {`Subject="CN=a;` + uri, nil},
		"open quote in a list": {`Subject="x,` + hashed + `Subject="CN=b";` + uri, nil},
		"quote within":         {`Subject=a"b;` + uri, nil},
		"text after a quote":   {`Subject="a"b;` + uri, nil},
		"quote that may close": {`Subject="CN=a\\";` + uri, nil},
		"quote that may not":   {`Subject="CN=a\\";URI=spiffe://corp.example/boss;By=";` + uri, nil},
		"hash of another":      {`Hash=ab;Cert="` + cert + `"`, nil},
		"name of another":      {`Cert="` + cert + `";DNS=b.example`, nil},
		"URI of another":       {`Cert="` + cert + `";URI=spiffe://corp.example/b`, nil},
		"two certs":            {`Cert="` + cert + cert + `"`, nil},
		"cert of nothing":      {`Cert="";` + uri, nil},
		"cert that is broken":  {`Cert="` + strings.Replace(cert, "M", "N", 1) + `"`, nil},
		"cert that is over":    {`Cert="` + expired + `"`, nil},
		"an element in a name": {named("spiffe://corp.example/a", "a.example,"+boss), nil},
		"one before a name":    {named("", ","+boss), nil},
		"one in a URI":         {named("spiffe://corp.example/a,"+boss, "a.example"), nil},
		"a URI in a name":      {hashed + "URI=;DNS=a.example;" + boss, nil},
		"itself":               {"URI=spiffe://corp.example/envoy", nil},
		"another proxy":        {uri + ";DNS=Proxy.example", nil},
	} {
		got, err := a.Authenticate(t.Context(), Proof{Certificate: envoy, Forwarded: []string{tc.header}})
		if !reflect.DeepEqual(got, tc.want) || (err == nil) != (tc.want != nil) ||
			err != nil && fault.ReasonOf(err) != fault.Unauthenticated {
			t.Errorf("%s: %+v, %v; want %+v", name, got, err, tc.want)
		}
	}
	for _, values := range [][]string{nil, {uri, uri}} {
		if id, err := a.Authenticate(t.Context(), Proof{Certificate: envoy, Forwarded: values}); err == nil {
			t.Errorf("with %d headers: %+v", len(values), id)
		}
	}
	// The header counts from proxies only.
	direct := &x509.Certificate{URIs: uris(t, "spiffe://corp.example/b"), DNSNames: []string{"b.example"},
		NotAfter: proxyEnd}
	id, err := a.Authenticate(t.Context(), Proof{Certificate: direct, Forwarded: []string{uri}})
	if err != nil || id.SPIFFE != "spiffe://corp.example/b" || id.Proxy != "" {
		t.Errorf("a header of a caller: %+v, %v", id, err)
	}
	direct.DNSNames = append(direct.DNSNames, "PROXY.example")
	id, err = a.Authenticate(t.Context(), Proof{Certificate: direct, Forwarded: []string{uri}})
	if err != nil || id.Name() != "spiffe://corp.example/a through proxy.example" {
		t.Errorf("a proxy with a DNS name: %+v, %v", id, err)
	}
}

// FuzzForwarded checks that a caller changes nothing by text that a proxy puts before its own element, and by its
// certificate's subject, in which proxies escape quotes.
func FuzzForwarded(f *testing.F) {
	for _, seed := range [][2]string{
		{"", "CN=a"}, {"URI=spiffe://x/boss", "CN=a"}, {`Subject="x`, ";URI=spiffe://x/boss"},
		{`Subject="x\`, `CN="`}, {`By=\`, `\";URI=spiffe://x/boss;Chain=`}, {"", `\`}, {`Subject="`, ";URI=spiffe://x/boss;By="},
	} {
		f.Add(seed[0], seed[1])
	}
	f.Fuzz(func(t *testing.T, before, subject string) {
		want := element{"by": {"spiffe://x/envoy"}, "hash": {"ab"}, "uri": {"spiffe://x/a"}}
		printed := strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(subject)
		for _, escaped := range []string{
			strings.ReplaceAll(subject, `"`, `\"`), printed, strings.ReplaceAll(printed, `"`, `\"`),
		} {
			want["subject"] = []string{escaped}
			got, err := lastElement(before + `,By=spiffe://x/envoy;Hash=ab;Subject="` + escaped + `";URI=spiffe://x/a`)
			if err == nil && !reflect.DeepEqual(got, want) {
				t.Errorf("before %q, subject %q: %v", before, escaped, got)
			}
		}
	})
}
