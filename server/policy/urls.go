package policy

import (
	"fmt"
	"net/url"
	"strings"
)

// ParseURLs checks a list of the URLs that may be named, in the form in which the bridge
// takes it: "https://HOST[:PORT][/PATH]", where HOST may begin with "*." for any name below,
// and PATH is what a path begins with.
func ParseURLs(list []string) ([]*url.URL, error) {
	var out []*url.URL
	for i, text := range list {
		u, err := url.Parse(text)
		if err != nil || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" || u.Scheme != "https" && u.Scheme != "http" {
			return nil, fmt.Errorf("urls[%d]: %q is not https://HOST[:PORT][/PATH]", i, text)
		}
		if strings.Contains(strings.TrimPrefix(u.Hostname(), "*."), "*") {
			return nil, fmt.Errorf("urls[%d]: %q has a \"*\" that is not before the first dot", i, text)
		}
		out = append(out, u)
	}
	return out, nil
}
