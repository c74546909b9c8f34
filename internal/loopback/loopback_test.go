package loopback_test

import (
	"testing"

	"github.com/copilot-grpc/copilot-grpc/internal/loopback"
)

func TestHost(t *testing.T) {
	t.Parallel()
	for host, want := range map[string]bool{
		"localhost": true, "LocalHost": true, "127.0.0.1": true, "127.1.2.3": true, "::1": true,
		"::ffff:127.0.0.1": true,
		"":                 false, "[::1]": false, "0.0.0.0": false, "::": false, "10.0.0.1": false,
		"localhost.example":     false,
		"127.0.0.1.nip.example": false, "127.1": false, "example.com": false,
	} {
		if got := loopback.Host(host); got != want {
			t.Errorf("Host(%q) = %t, want %t", host, got, want)
		}
	}
}

func TestAuthority(t *testing.T) {
	t.Parallel()
	for authority, want := range map[string]bool{
		"localhost": true, "localhost:80": true, "127.0.0.1:80": true, "[::1]": true, "[::1]:80": true, "::1": true,
		"": false, ":80": false, "example.com:80": false, "localhost.example:80": false, "[::1]:80:80": false,
	} {
		if got := loopback.Authority(authority); got != want {
			t.Errorf("Authority(%q) = %t, want %t", authority, got, want)
		}
	}
}
