// Monitoring writes deploy/monitoring: the Grafana dashboard and the Prometheus rules of the server's metrics. It also draws the
// dashboard with the data of a Prometheus.
package main

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"html"
	"os"
	"path/filepath"
	"time"
)

func main() {
	out := flag.String("out", "", "the directory to write to")
	check := flag.Bool("check", false, "only compare with what is there")
	picture := flag.String("picture", "", "the `file` of the picture, which -draw writes and -check reads")
	prometheus := flag.String("draw", "", "only draw the dashboard with the data of the Prometheus at this `URL`")
	last := flag.Duration("last", 5*time.Minute, "the time that the picture shows, until now")
	flag.Parse()
	var err error
	switch now := time.Now(); {
	case *prometheus != "":
		err = write(*picture, source{*prometheus, span{now.Add(-*last), now}})
	case *check:
		err = errors.Join(run(*out, true), shows(*picture))
	default:
		err = run(*out, false)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// write draws the dashboard to a file.
func write(picture string, s source) error {
	drawn, err := draw(s)
	if err != nil {
		return err
	}
	return os.WriteFile(picture, drawn, 0o644)
}

// shows checks that a picture has the panels of the dashboard.
func shows(picture string) error {
	text, err := os.ReadFile(picture)
	if err != nil {
		return err
	}
	for _, row := range rows {
		for _, p := range row.panels {
			if !bytes.Contains(text, []byte(">"+html.EscapeString(p.title)+"<")) {
				return fmt.Errorf("%s has no panel %q: run .ci/dashboard", picture, p.title)
			}
		}
	}
	return nil
}

func run(out string, check bool) error {
	dash, err := dashboardJSON()
	if err != nil {
		return err
	}
	rules, err := rulesYAML()
	if err != nil {
		return err
	}
	for name, data := range map[string][]byte{"dashboard.json": dash, "rules.yaml": rules} {
		path := filepath.Join(out, name)
		if !check {
			if err := os.WriteFile(path, data, 0o644); err != nil {
				return err
			}
			continue
		}
		have, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		if !bytes.Equal(have, data) {
			return fmt.Errorf("%s is not what internal/tools/monitoring makes: make generate", path)
		}
	}
	return nil
}
