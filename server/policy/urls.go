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

// resolveTimeout bounds asking for the addresses of a name.
const resolveTimeout = 3 * time.Second

// parseURLs reads a list of the URLs that may be named: "https://HOST[:PORT][/PATH]", where
// HOST may begin with "*." for any name below, and PATH is what a path begins with.
func parseURLs(list []string) ([]*url.URL, error) {
	var out []*url.URL
	for i, text := range list {
		u, err := url.Parse(text)
		if err != nil || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" || u.Scheme != "https" && u.Scheme != "http" {
			return nil, fmt.Errorf("[%d]: %q is not https://HOST[:PORT][/PATH]", i, text)
		}
		if strings.Contains(strings.TrimPrefix(u.Hostname(), "*."), "*") {
			return nil, fmt.Errorf("[%d]: %q has a \"*\" that is not before the first dot", i, text)
		}
		out = append(out, u)
	}
	return out, nil
}

// checkURL refuses an address that the list does not have, and one that leads elsewhere
// than into the Internet unless it is among the private ones.
func (t *Tenant) checkURL(ctx context.Context, text string) error {
	u, err := url.Parse(text)
	// Two readers of an odd URL may see two hosts in it.
	if err != nil || u.Host == "" || u.User != nil || u.Opaque != "" || strings.ContainsAny(text, "\\\t\r\n ") || u.Scheme != "https" && u.Scheme != "http" {
		return errors.New("it is no plain URL")
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
		return errors.New("the URL leads to a private address, and is not on the tenant's list of those")
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

// special are networks that are neither private nor of use in the Internet: shared space
// of carriers, where some clouds keep their metadata, and translations of IPv4 addresses.
var special = []netip.Prefix{
	netip.MustParsePrefix("0.0.0.0/8"), netip.MustParsePrefix("100.64.0.0/10"), netip.MustParsePrefix("192.0.0.0/24"),
	netip.MustParsePrefix("198.18.0.0/15"), netip.MustParsePrefix("240.0.0.0/4"), netip.MustParsePrefix("64:ff9b::/96"),
	netip.MustParsePrefix("64:ff9b:1::/48"), netip.MustParsePrefix("2002::/16"), netip.MustParsePrefix("fec0::/10"),
}

// inside reports whether an address is none of the Internet's.
func inside(a netip.Addr) bool {
	a = a.Unmap()
	return !a.IsGlobalUnicast() || a.IsPrivate() || a.IsLoopback() || a.IsLinkLocalUnicast() ||
		slices.ContainsFunc(special, func(p netip.Prefix) bool { return p.Contains(a) })
}

// covered reports whether a list has the URL.
func covered(list []*url.URL, u *url.URL) bool {
	return slices.ContainsFunc(list, func(p *url.URL) bool {
		return p.Scheme == u.Scheme && port(p) == port(u) && coversHost(p.Hostname(), u.Hostname()) && coversPath(p.Path, u.Path)
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

// coversPath compares whole segments, of paths that do not climb.
func coversPath(prefix, p string) bool {
	if prefix = strings.TrimSuffix(prefix, "/"); prefix == "" {
		return true
	}
	p = path.Clean("/" + p)
	return p == prefix || strings.HasPrefix(p, prefix+"/")
}
