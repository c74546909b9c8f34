package transport

import (
	"fmt"
	"strconv"
	"strings"

	"google.golang.org/grpc/codes"
)

// The versions of servers that this library works with: from the first, before the second.
var (
	firstVersion  = [2]int{0, 1}
	beforeVersion = [2]int{1, 0}
)

// Window returns the versions of servers that work with this library, in words.
func Window() string {
	return fmt.Sprintf("%d.%d up to, but not including, %d.%d",
		firstVersion[0], firstVersion[1], beforeVersion[0], beforeVersion[1])
}

// IsForeign reports whether an error shows a server without the API: one of another gRPC
// API, or of HTTP only.
func IsForeign(code codes.Code, message string) bool {
	switch code {
	case codes.Unimplemented, codes.NotFound, codes.Unknown:
		return true
	case codes.Unavailable:
		return strings.Contains(message, "HTTP/1.1 header")
	}
	return false
}

// IsCompatible reports whether a server's version is in the window. Builds of developers
// have no number, and count as compatible.
func IsCompatible(version string) bool {
	text, _, _ := strings.Cut(strings.TrimPrefix(version, "v"), "-")
	numbers := strings.Split(text, ".")
	if len(numbers) < 2 {
		return true
	}
	var v [2]int
	for i := range v {
		n, err := strconv.Atoi(numbers[i])
		if err != nil {
			return true
		}
		v[i] = n
	}
	isBefore := func(a, b [2]int) bool { return a[0] < b[0] || a[0] == b[0] && a[1] < b[1] }
	return !isBefore(v, firstVersion) && isBefore(v, beforeVersion)
}
