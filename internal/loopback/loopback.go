// Package loopback knows the names of this machine for itself.
package loopback

import (
	"net"
	"strings"
)

// Host reports that host names this machine without asking a name server, which others may
// control. An IPv6 address has no brackets.
func Host(host string) bool {
	ip := net.ParseIP(host)
	return strings.EqualFold(host, "localhost") || ip != nil && ip.IsLoopback()
}

// Authority is Host for a host with an optional port, as requests have it.
func Authority(authority string) bool {
	host, _, err := net.SplitHostPort(authority)
	if err != nil {
		host = strings.TrimSuffix(strings.TrimPrefix(authority, "["), "]")
	}
	return Host(host)
}
