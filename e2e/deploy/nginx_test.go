package deploy

import (
	"fmt"
	"testing"
	"time"

	"github.com/copilot-grpc/copilot-grpc/e2e/harness"
)

// nginxEnv names the executable of nginx.
const nginxEnv = "COPILOT_GRPC_TEST_NGINX"

// newNginx starts a server behind nginx, with deploy/nginx.conf.
func newNginx(t *testing.T, patience time.Duration, rules ...harness.Rule) *proxied {
	t.Helper()
	bin := harness.Installed(t, "nginx", nginxEnv)
	st := harness.NewScripted(t, rules...)
	p := newProxied(t, patience)
	upstream := harness.FreeAddress(t)
	harness.WriteFiles(t, p.dir, map[string]string{"nginx.conf": `daemon off;
master_process off;
pid nginx.pid;
error_log stderr warn;
events {}
http {
    access_log off;
    client_body_temp_path body; proxy_temp_path proxy; fastcgi_temp_path fastcgi; uwsgi_temp_path uwsgi; scgi_temp_path scgi;
    include site.conf;
}
`})
	p.serve(st, "--listen", upstream, "--drain-grace", "1s")
	p.open("site.conf", func() string { return p.site(upstream) }, bin, "-p", p.dir, "-c", "nginx.conf", "-e", "stderr")
	return p
}

// site is deploy/nginx.conf with the addresses and files of the test, and times that a test can wait for. Every text
// that it replaces has to be there.
func (p *proxied) site(upstream string) string {
	p.T.Helper()
	return harness.Edited(p.T, "../../deploy/nginx.conf", map[string]string{
		"listen 443 ":              "listen " + p.address + " ",
		"server 127.0.0.1:7443;":   "server " + upstream + ";",
		"/etc/copilot-grpc/":       p.dir + "/",
		"grpc_read_timeout   75s;": fmt.Sprintf("grpc_read_timeout %ds;", int(p.patience.Seconds())),
		"grpc_send_timeout   75s;": fmt.Sprintf("grpc_send_timeout %ds;", int(p.patience.Seconds())),
		"client_body_timeout 75s;": fmt.Sprintf("client_body_timeout %ds;", int(p.patience.Seconds())),
	})
}

func TestNginxIdleStreams(t *testing.T) {
	t.Parallel()
	newNginx(t, 5*time.Second, harness.OnUser("hello", harness.Say("hi"))).testIdleStreams()
}

// TestNginxDrain: when the bridge behind nginx is replaced, readers get a GoAway, come back through nginx, and miss
// nothing.
func TestNginxDrain(t *testing.T) {
	t.Parallel()
	newNginx(t, 75*time.Second, harness.OnUser("one", harness.Say("1")), harness.OnUser("two", harness.Say("2"))).testDrain()
}

// TestNginxDoctor: doctor finds nothing broken with deploy/nginx.conf but streams that are silent for longer than nginx
// lets them be.
func TestNginxDoctor(t *testing.T) {
	t.Parallel()
	newNginx(t, 3*time.Second).testDoctor()
}
