package bench

import (
	"fmt"
	"slices"
	"time"
)

// sample is one figure, once for each repeat.
type sample []float64

func (s *sample) add(v float64) { *s = append(*s, v) }

// median is the middle of the repeats.
func (s sample) median() float64 { return percentile(s, 0.5) }

// percentile returns the smallest value that at least a share p of all does not exceed.
func percentile(values []float64, p float64) float64 {
	if len(values) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(values))
	return sorted[min(int(p*float64(len(sorted))), len(sorted)-1)]
}

// String is the median with the range: "1.5 [1.4..1.7]".
func (s sample) String() string {
	if len(s) == 0 {
		return "not run"
	}
	return fmt.Sprintf("%s [%s..%s]", number(s.median()), number(slices.Min(s)), number(slices.Max(s)))
}

// number has three significant digits.
func number(v float64) string {
	switch {
	case v >= 100:
		return fmt.Sprintf("%.0f", v)
	case v >= 10:
		return fmt.Sprintf("%.1f", v)
	default:
		return fmt.Sprintf("%.2f", v)
	}
}

// latency is a kind of operation, measured in several repeats.
type latency struct {
	p50, p99 sample // µs
	cpu      sample // µs per operation in the process that is looked at
}

func (l *latency) add(took []float64) {
	l.p50.add(percentile(took, 0.5))
	l.p99.add(percentile(took, 0.99))
}

// ratio compares repeat by repeat, since the machine is not the same throughout.
func ratio(a, b sample) sample {
	var out sample
	for i := range min(len(a), len(b)) {
		if b[i] > 0 {
			out.add(a[i] / b[i])
		}
	}
	return out
}

func micros(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1e3 }
