package bench

import (
	"fmt"
	"math"
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

// interval returns an interval in which the true median is with a probability of at least 95 %, whatever the
// distribution: a given number of the smallest and of the largest values is left out. ok is false for less than six
// values, for which there is none.
func (s sample) interval() (low, high float64, ok bool) {
	n := len(s)
	outside := 0.0 // the probability that fewer than cut values are below the median
	cut := 0
	for p := math.Pow(0.5, float64(n)); outside+p <= 0.025; cut++ {
		outside += p
		p *= float64(n-cut) / float64(cut+1)
	}
	if cut == 0 {
		return 0, 0, false
	}
	sorted := slices.Sorted(slices.Values(s))
	return sorted[cut-1], sorted[n-cut], true
}

// verdict says what a sample of ratios shows.
func (s sample) verdict() string {
	low, high, ok := s.interval()
	switch {
	case !ok:
		return "too few repeats"
	case high < 1:
		return fmt.Sprintf("less: %s to %s", number(low), number(high))
	case low > 1:
		return fmt.Sprintf("more: %s to %s", number(low), number(high))
	default:
		return fmt.Sprintf("no difference shown: %s to %s", number(low), number(high))
	}
}

func micros(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1e3 }
