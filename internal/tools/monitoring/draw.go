package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"html"
	"math"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/grafana/grafana-foundation-sdk/go/units"
)

// Sizes of the picture, in pixels: panels in columns, a heading over each group, and the plot within a panel.
const (
	columns               = 4
	panelWidth, panelHigh = 280, 202
	heading               = 32
	plotLeft, plotTop     = 60, 30
	plotWidth, plotHigh   = 206, 86
	legendLines           = 4
	points                = 60
)

// colors are those of the series, which can be told apart on light and dark ground.
var colors = []string{"#3d8f5b", "#d18616", "#3f7fd0", "#c4483f", "#8a63c9", "#1f9aa5", "#b3578f", "#7d7d7d"}

const style = `text{font:12px system-ui,sans-serif;fill:#333}.t{font-weight:600}.h{font-size:15px;font-weight:600}.d{fill:#777}` +
	`.p{fill:none;stroke:#ccc}.g{stroke:#8883}polyline{fill:none;stroke-width:1.5}` +
	`@media(prefers-color-scheme:dark){text{fill:#ddd}.d{fill:#999}.p{stroke:#444}}`

// span is the time that a picture shows.
type span struct{ from, to time.Time }

// series is a line of a panel.
type series struct {
	legend string
	at     []float64 // seconds since the beginning of the span
	values []float64
}

// source is a Prometheus.
type source struct {
	url  string
	span span
}

// draw returns a picture of the dashboard with the answers of a Prometheus to the queries of its panels.
func draw(s source) ([]byte, error) {
	var b strings.Builder
	y := 0
	for _, row := range rows {
		fmt.Fprintf(&b, `<text class="h" x="4" y="%d">%s</text>`+"\n", y+20, html.EscapeString(row.title))
		y += heading
		for i, p := range row.panels {
			all, err := s.panel(p)
			if err != nil {
				return nil, fmt.Errorf("panel %q: %w", p.title, err)
			}
			if i > 0 && i%columns == 0 {
				y += panelHigh
			}
			fmt.Fprintf(&b, `<g transform="translate(%d %d)">`+"\n%s</g>\n", i%columns*panelWidth, y, p.picture(all, s.span))
		}
		y += panelHigh
	}
	head := fmt.Sprintf(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %[1]d %[2]d" width="%[1]d"><style>%[3]s</style>`+"\n",
		columns*panelWidth, y, style)
	return []byte(head + b.String() + "</svg>\n"), nil
}

// panel returns the series of a panel.
func (s source) panel(p panel) (all []series, err error) {
	for _, q := range p.queries {
		some, err := s.ask(q)
		if err != nil {
			return nil, err
		}
		all = append(all, some...)
	}
	return all, nil
}

// ask returns the series of a query, sorted by their legends.
func (s source) ask(q query) (all []series, err error) {
	expr := strings.NewReplacer("$job", ".*", "$instance", ".*", "$__rate_interval", "1m").Replace(q.expr)
	length := s.span.to.Sub(s.span.from)
	reply, err := http.Get(s.url + "/api/v1/query_range?" + url.Values{
		"query": {expr}, "step": {strconv.FormatFloat(length.Seconds()/points, 'f', 3, 64)},
		"start": {strconv.FormatInt(s.span.from.Unix(), 10)}, "end": {strconv.FormatInt(s.span.to.Unix(), 10)},
	}.Encode())
	if err != nil {
		return nil, err
	}
	defer func() { _ = reply.Body.Close() }()
	var answer struct {
		Error string
		Data  struct {
			Result []struct {
				Metric map[string]string
				Values [][2]any
			}
		}
	}
	if err := json.NewDecoder(reply.Body).Decode(&answer); err != nil || answer.Error != "" {
		return nil, fmt.Errorf("%s: %s, %v", expr, answer.Error, err)
	}
	for _, r := range answer.Data.Result {
		line := series{legend: legendOf(q.legend, r.Metric)}
		for _, v := range r.Values {
			text, _ := v[1].(string)
			n, err := strconv.ParseFloat(text, 64)
			if at, ok := v[0].(float64); ok && err == nil && !math.IsNaN(n) && !math.IsInf(n, 0) {
				line.at, line.values = append(line.at, at-float64(s.span.from.Unix())), append(line.values, n)
			}
		}
		if len(line.values) > 0 {
			all = append(all, line)
		}
	}
	slices.SortFunc(all, func(a, b series) int { return cmp.Compare(a.legend, b.legend) })
	return all, nil
}

var label = regexp.MustCompile(`\{\{([a-z_]+)\}\}`)

// legendOf fills the labels of a series into its legend.
func legendOf(legend string, labels map[string]string) string {
	return label.ReplaceAllStringFunc(legend, func(name string) string { return labels[strings.Trim(name, "{}")] })
}

// picture returns a panel with its series.
func (p panel) picture(all []series, over span) string {
	var b strings.Builder
	top, scale := 0.0, 1.0
	for _, s := range all {
		top = max(top, slices.Max(s.values))
	}
	for scale = 1.0; p.unit == units.BytesIEC && top/scale >= 1024; scale *= 1024 {
	}
	top = ceiling(top/scale) * scale
	fmt.Fprintf(&b, `<rect class="p" x="2" y="2" width="%d" height="%d" rx="3"/><text class="t" x="10" y="18">%s</text>`+"\n",
		panelWidth-6, panelHigh-6, html.EscapeString(p.title))
	for i := range 3 {
		y := plotTop + plotHigh*i/2
		fmt.Fprintf(&b, `<path class="g" d="M%d %dh%d"/><text class="d" x="%d" y="%d" text-anchor="end">%s</text>`+"\n",
			plotLeft, y, plotWidth, plotLeft-4, y+4, number(top*float64(2-i)/2, p.unit))
	}
	for i, at := range []time.Time{over.from, over.to} {
		fmt.Fprintf(&b, `<text class="d" x="%d" y="%d" text-anchor="%s">%s</text>`+"\n", plotLeft+i*plotWidth, plotTop+plotHigh+13,
			[]string{"start", "end"}[i], at.UTC().Format("15:04"))
	}
	perLine := 2
	if slices.ContainsFunc(all, func(s series) bool { return len(s.legend) > 17 }) {
		perLine = 1
	}
	for i, s := range all {
		color := colors[i%len(colors)]
		b.WriteString(s.lines(color, top, over))
		if x, y := 10+i%perLine*130, plotTop+plotHigh+29+i/perLine*14; i < perLine*legendLines {
			fmt.Fprintf(&b, `<path stroke="%s" stroke-width="3" d="M%d %dh8"/><text x="%d" y="%d">%s</text>`+"\n", color, x, y-4, x+12, y,
				html.EscapeString(shorten(s.legend)))
		}
	}
	if len(all) == 0 {
		fmt.Fprintf(&b, `<text class="d" x="%d" y="%d" text-anchor="middle">none</text>`+"\n", plotLeft+plotWidth/2, plotTop+plotHigh/2+16)
	}
	return b.String()
}

// lines returns the lines of a series, which has a gap wherever Prometheus has no value.
func (s series) lines(color string, top float64, over span) string {
	length := over.to.Sub(over.from).Seconds()
	var b strings.Builder
	for i := range s.at {
		if i == 0 || s.at[i]-s.at[i-1] > 1.5*length/points {
			b.WriteString(strings.Repeat(`"/>`+"\n", min(i, 1)))
			fmt.Fprintf(&b, `<polyline stroke="%s" stroke-linecap="round" points="`, color)
		}
		fmt.Fprintf(&b, "%.0f,%.0f ", plotLeft+s.at[i]/length*plotWidth, plotTop+plotHigh*(1-s.values[i]/top))
	}
	return b.String() + `"/>` + "\n"
}

// ceiling returns the next 1, 2 or 5 of a power of ten.
func ceiling(n float64) float64 {
	if n <= 0 {
		return 1
	}
	power := math.Pow(10, math.Floor(math.Log10(n)))
	for _, step := range []float64{1, 2, 5} {
		if n <= step*power*1.0001 {
			return step * power
		}
	}
	return 10 * power
}

// number formats a number of a unit.
func number(n float64, unit string) string {
	scaled := func(n float64, base float64, names ...string) string {
		i := 0
		for ; n >= base && i < len(names)-1; i++ {
			n /= base
		}
		return strconv.FormatFloat(n, 'g', 3, 64) + names[i]
	}
	switch unit {
	case units.Seconds:
		if n > 0 && n < 1 {
			return scaled(n*1000, 1000, " ms")
		}
		return scaled(n, 1e9, " s")
	case units.BytesIEC:
		return scaled(n, 1024, " B", " KiB", " MiB", " GiB")
	case units.PercentUnit:
		return scaled(n*100, 1e9, " %")
	case units.OpsPerSecond:
		return scaled(n, 1000, "/s", "k/s")
	}
	return scaled(n, 1000, "", "k", "M")
}

// shorten cuts a legend to what fits: the end tells methods apart.
func shorten(text string) string {
	const fits = 34
	if len(text) <= fits {
		return text
	}
	return "…" + text[len(text)-fits+1:]
}
