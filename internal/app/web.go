package app

import (
	"cmp"
	"fmt"
	"net/url"
	"path/filepath"
	"strings"
	"time"

	"github.com/copilot-grpc/copilot-grpc/bridge/caller"
	"github.com/copilot-grpc/copilot-grpc/internal/loopback"
	"github.com/copilot-grpc/copilot-grpc/server"
	"github.com/copilot-grpc/copilot-grpc/server/console"
	"github.com/copilot-grpc/copilot-grpc/server/identity"
	"github.com/copilot-grpc/copilot-grpc/server/login"
	"github.com/copilot-grpc/copilot-grpc/server/web"
)

func checkWeb(c *Config) error {
	for _, origin := range c.WebOrigins {
		if err := web.CheckOrigin(origin); err != nil {
			return wrong("web_origins", err)
		}
	}
	address := webAddress(c)
	switch {
	case address == "" && len(c.WebOrigins) > 0:
		return wrongf("web_origins", "origins need a listener for browsers (web)")
	case address == "" && c.WebURL != "":
		return wrongf("web_url", "a URL needs a listener for browsers (web)")
	case address == "":
		return nil
	case strings.HasPrefix(address, unixPrefix):
		return wrongf("web_listen", "%q is a socket: browsers need a TCP address", address)
	}
	if err := server.CheckAddress(address, c.wide()); err != nil {
		return wrong("web_listen", err)
	}
	return wrong("web_url", checkURL(c.WebURL))
}

// checkURL checks the URL of the listener for browsers. Only pages of this machine may do without TLS.
func checkURL(text string) error {
	if text == "" {
		return nil
	}
	u, err := url.Parse(text)
	switch {
	case err != nil || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" ||
		u.Path != "" && u.Path != "/":
		return fmt.Errorf("%q is not of the form https://HOST or https://HOST:PORT", text)
	case u.Scheme != "https" && (u.Scheme != "http" || !loopback.Host(u.Hostname())):
		return fmt.Errorf("%q needs https, unless the host is localhost, 127.0.0.1 or [::1]", text)
	}
	return nil
}

// webAddress returns the address of the listener for browsers; "" if there is none.
func webAddress(c *Config) string {
	if c.Web {
		return cmp.Or(c.WebListen, DefaultWebListen)
	}
	return c.WebListen
}

// web returns the listener for browsers, with the console; nil if there is none.
func (a *App) web() (*server.Web, error) {
	c := &a.config
	address := webAddress(c)
	if address == "" {
		return nil, nil
	}
	pages, err := console.New()
	if err != nil {
		return nil, err
	}
	store := login.Config{Lifetime: c.WebLoginTime}
	if c.DataDir != "" {
		store.Path = filepath.Join(c.dataDir(), "logins.json")
	}
	if a.logins, err = login.Open(store); err != nil {
		return nil, err
	}
	return &server.Web{Listen: address, Origins: c.WebOrigins, URL: c.WebURL, Logins: a.logins,
		Pages: pages}, nil
}

// startLinkTime is how long the link is valid that the server prints at its start.
const startLinkTime = time.Hour

// WebLink returns a new one-time link by which a browser logs in as the owner of the host. It returns "" if there is no
// listener for browsers, or a policy, with which callers have logins of their own.
func (a *App) WebLink() string {
	if a.logins == nil || a.policy != nil {
		return ""
	}
	link, _ := a.logins.Link(identity.Login{Identity: identity.Identity{Source: identity.Socket},
		Tenant: caller.HostName, Role: caller.Admin}, startLinkTime)
	return link
}
