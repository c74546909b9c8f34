package policy

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"path"
	"slices"
	"strings"
	"time"
)

// resolveTimeout bounds the lookup of a name's addresses.
const resolveTimeout = 3 * time.Second

// parseURLs parses a list of permitted URLs: "https://HOST[:PORT][/PATH]". HOST may begin with "*." to match all its
// subdomains, and PATH is a prefix.
func parseURLs(list []string) ([]*url.URL, error) {
	var out []*url.URL
	for i, text := range list {
		u, err := url.Parse(text)
		if err != nil || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" || u.Scheme != "https" &&
			u.Scheme != "http" {
			return nil, fmt.Errorf("[%d]: %q is not https://HOST[:PORT][/PATH]", i, text)
		}
		if strings.Contains(strings.TrimPrefix(u.Hostname(), "*."), "*") {
			return nil, fmt.Errorf("[%d]: %q has a \"*\" after the first dot", i, text)
		}
		out = append(out, u)
	}
	return out, nil
}

// checkURL refuses a URL that is not on the list, and one that leads to a non-public address unless it is on the
// private list.
func (t *Tenant) checkURL(ctx context.Context, text string) error {
	u, err := url.Parse(text)
	// Two parsers may read different hosts from an unusual URL.
	if err != nil || u.Host == "" || u.User != nil || u.Opaque != "" || strings.ContainsAny(text, "\\\t\r\n ") ||
		u.Scheme != "https" && u.Scheme != "http" {
		return errors.New("it is not a plain URL")
	}
	if covered(t.private, u) {
		return nil
	}
	if !covered(t.public, u) {
		return errors.New("the URL is not on the tenant's list")
	}
	addresses, err := t.addresses(ctx, u.Hostname())
	if err != nil || len(addresses) == 0 {
		return errors.New("the URL's host has no address")
	}
	if slices.ContainsFunc(addresses, inside) {
		return errors.New("the URL leads to a private address that is not on the tenant's list of private URLs")
	}
	return nil
}

// addresses resolves a host.
func (t *Tenant) addresses(ctx context.Context, host string) ([]netip.Addr, error) {
	if address, err := netip.ParseAddr(host); err == nil {
		return []netip.Addr{address}, nil
	}
	ctx, cancel := context.WithTimeout(ctx, resolveTimeout)
	defer cancel()
	resolve := t.resolve
	if resolve == nil {
		resolve = net.DefaultResolver.LookupNetIP
	}
	return resolve(ctx, "ip", host)
}

// special are networks that are neither private nor public: shared space of carriers, where some clouds keep their
// metadata, and translations of IPv4 addresses.
var special = []netip.Prefix{
	netip.MustParsePrefix("0.0.0.0/8"), netip.MustParsePrefix("100.64.0.0/10"), netip.MustParsePrefix("192.0.0.0/24"),
	netip.MustParsePrefix("198.18.0.0/15"), netip.MustParsePrefix("240.0.0.0/4"), netip.MustParsePrefix("64:ff9b::/96"),
	netip.MustParsePrefix("64:ff9b:1::/48"), netip.MustParsePrefix("2002::/16"), netip.MustParsePrefix("fec0::/10"),
}

// inside reports whether an address is not public.
func inside(a netip.Addr) bool {
	a = a.Unmap()
	return !a.IsGlobalUnicast() || a.IsPrivate() || a.IsLoopback() || a.IsLinkLocalUnicast() ||
		slices.ContainsFunc(special, func(p netip.Prefix) bool { return p.Contains(a) })
}

// covered reports whether a list contains the URL.
func covered(list []*url.URL, u *url.URL) bool {
	return slices.ContainsFunc(list, func(p *url.URL) bool {
		return p.Scheme == u.Scheme && port(p) == port(u) && coversHost(p.Hostname(), u.Hostname()) &&
			coversPath(p.Path, u.Path)
	})
}

func port(u *url.URL) string {
	if p := u.Port(); p != "" {
		return p
	}
	return map[string]string{"http": "80", "https": "443"}[u.Scheme]
}

func coversHost(pattern, host string) bool {
	pattern, host = strings.ToLower(pattern), strings.TrimSuffix(strings.ToLower(host), ".")
	if below, ok := strings.CutPrefix(pattern, "*."); ok {
		return strings.HasSuffix(host, "."+below)
	}
	return pattern == host
}

// coversPath compares whole segments, of paths without "..".
func coversPath(prefix, p string) bool {
	if prefix = strings.TrimSuffix(prefix, "/"); prefix == "" {
		return true
	}
	p = path.Clean("/" + p)
	return p == prefix || strings.HasPrefix(p, prefix+"/")
}
