package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	tea "charm.land/bubbletea/v2"
	"google.golang.org/grpc/codes"

	copilot "github.com/copilot-grpc/copilot-grpc/clients/go"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
	"github.com/copilot-grpc/copilot-grpc/internal/setting"
	"github.com/copilot-grpc/copilot-grpc/internal/terminal"
)

const topUsage = `Shows what the server does, live: CLI processes with their memory, open sessions, turns and the rate of
events. Sessions with a running turn come first, then those with the most new events. q or Ctrl-C leaves.

  copilot-grpc top
  copilot-grpc top --once -o json

--once prints the state once, without rates; --interval is the time between two looks. A server that goes away is waited
for up to 2 minutes.`

func setupTop(p *program, f *flags) action {
	c := p.connection(f)
	out := p.printer(f)
	once := f.Bool("once", false, "print the state once")
	interval := f.Duration("interval", 2*time.Second, "`duration` between two looks at the server, at least 100ms")
	return func(ctx context.Context, _ []string) error {
		switch {
		case *interval < 100*time.Millisecond:
			return usageError{errors.New("--interval is less than 100ms")}
		case !*once && (!out.forPeople() || !isTerminal(p.stdin) || !isTerminal(p.stdout)):
			return usageError{errors.New("the live screen needs a terminal: print the state with --once")}
		}
		return c.with(ctx, func(client *copilot.Client) error {
			now, err := look(ctx, client)
			if err != nil {
				return err
			}
			if *once {
				return now.print(out)
			}
			return interrupted(ctx, watchTop(ctx, p, client, now, *interval))
		})
	}
}

type snapshot struct {
	at       time.Time
	info     *bridgev1.GetServerInfoResponse
	runtimes []*bridgev1.RuntimeInfo
	// sessions are the open ones.
	sessions []*copilot.SessionInfo
	// rates are the events a second of sessions since the last snapshot; nil without one.
	rates map[string]float64
}

func look(ctx context.Context, client *copilot.Client) (*snapshot, error) {
	info, err := client.ServerInfo(ctx)
	if err != nil {
		return nil, err
	}
	runtimes, err := client.Runtimes().ListRuntimes(ctx, &bridgev1.ListRuntimesRequest{})
	if err != nil {
		return nil, err
	}
	s := &snapshot{info: info, runtimes: runtimes.GetRuntimes()}
	for one, err := range client.ListSessions(ctx, copilot.ListOptions{}) {
		if err != nil {
			return nil, err
		}
		if one.State == copilot.StateLoaded || one.State == copilot.StateUnloaded {
			s.sessions = append(s.sessions, one)
		}
	}
	s.at = time.Now()
	return s, nil
}

// since computes the rates since an earlier snapshot, and orders the sessions by them.
func (s *snapshot) since(last *snapshot) {
	before := map[string]*bridgev1.Position{}
	for _, one := range last.sessions {
		before[one.ID] = one.Proto.GetPosition()
	}
	s.rates = map[string]float64{}
	seconds := s.at.Sub(last.at).Seconds()
	for _, one := range s.sessions {
		now, then := one.Proto.GetPosition(), before[one.ID]
		if then.GetEpoch() == now.GetEpoch() && now.GetSeq() >= then.GetSeq() && then != nil && seconds > 0 {
			s.rates[one.ID] = float64(now.GetSeq()-then.GetSeq()) / seconds
		}
	}
	slices.SortStableFunc(s.sessions, func(a, b *copilot.SessionInfo) int {
		return cmp.Compare(s.rank(b), s.rank(a))
	})
}

// rank orders sessions: those with a running turn first, then by their rates.
func (s *snapshot) rank(one *copilot.SessionInfo) float64 {
	if stateOf(one) == stateRunning {
		return 1e12 + s.rates[one.ID]
	}
	return s.rates[one.ID]
}

func (s *snapshot) head() string {
	turns, memory, rate := 0, int64(0), 0.0
	for _, one := range s.sessions {
		if stateOf(one) == stateRunning {
			turns++
		}
		rate += s.rates[one.ID]
	}
	for _, r := range s.runtimes {
		memory += r.GetRssBytes()
	}
	line := fmt.Sprintf("copilot-grpc %s   sessions: %d   turns: %d   CLI processes: %d   memory: %s", terminal.CleanLine(s.info.GetVersion()),
		len(s.sessions), turns, len(s.runtimes), sizeText(memory))
	if s.rates != nil {
		line += fmt.Sprintf("   events/s: %.1f", rate)
	}
	return line
}

func (s *snapshot) table() table {
	rows := table{columns: []column{{head: "SESSION", least: 8}, {head: "STATE"}, {head: "AGE"}, {head: "EVENTS/S"},
		{head: "TITLE", least: 10}, {head: "MODEL", least: 6}}}
	for _, one := range s.sessions {
		rate := ""
		if r, known := s.rates[one.ID]; known {
			rate = fmt.Sprintf("%.1f", r)
		}
		rows.add(one.Proto, one.ID, stateOf(one), age(one.Proto.GetCreateTime(), s.at), rate, one.Title, one.Model)
	}
	return rows
}

// render is the snapshot for a terminal, cut to its size. 0 is no limit.
func (s *snapshot) render(width, height int) string {
	runtimes, sessions := runtimeTable(s.runtimes, s.at), s.table()
	text := cut(s.head(), width) + "\n\n" + runtimes.text(width) + "\n" + sessions.text(width)
	lines := strings.SplitAfter(strings.TrimSuffix(text, "\n"), "\n")
	if height > 0 && len(lines) > height {
		lines = lines[:height]
	}
	return strings.TrimSuffix(strings.Join(lines, ""), "\n")
}

func (s *snapshot) print(out *printer) error {
	if out.forPeople() {
		_, err := fmt.Fprintln(out.out, s.render(terminalWidth(out.out), 0))
		return err
	}
	return out.document(members{{"version", s.info.GetVersion()}, {"runtimes", runtimeTable(s.runtimes, s.at).values},
		{"sessions", s.table().values}})
}

// lookTime bounds a look at a server that does not reply.
const lookTime = 10 * time.Second

// watchTop shows the server until the person leaves or a look at it fails.
func watchTop(ctx context.Context, p *program, client *copilot.Client, first *snapshot, every time.Duration) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	screen := &topScreen{shown: first, every: every, patience: p.patience,
		look: func() (*snapshot, error) {
			ctx, cancel := context.WithTimeout(ctx, lookTime)
			defer cancel()
			return look(ctx, client)
		}}
	program := tea.NewProgram(screen, tea.WithInput(p.stdin), tea.WithOutput(p.stdout.w), tea.WithEnvironment(p.environ()),
		tea.WithoutSignalHandler())
	defer context.AfterFunc(ctx, program.Quit)()
	if _, err := program.Run(); err != nil {
		return err
	}
	return screen.failed
}

type topScreen struct {
	shown *snapshot
	every time.Duration
	// patience is how long a server that goes away is waited for, since lostAt; zero while it answers.
	patience      time.Duration
	lostAt        time.Time
	look          func() (*snapshot, error)
	width, height int
	failed        error
}

type looked struct {
	snapshot *snapshot
	err      error
	// at is when it failed.
	at time.Time
}

func (t *topScreen) Init() tea.Cmd { return t.next() }

// next looks at the server after the interval.
func (t *topScreen) next() tea.Cmd {
	return tea.Tick(t.every, func(time.Time) tea.Msg {
		now, err := t.look()
		return looked{now, err, time.Now()}
	})
}

func (t *topScreen) Update(msg tea.Msg) (tea.Model, tea.Cmd) {
	switch m := msg.(type) {
	case tea.WindowSizeMsg:
		t.width, t.height = m.Width, m.Height
	case tea.KeyPressMsg:
		if key := m.Keystroke(); key == "q" || key == "ctrl+c" {
			return t, tea.Quit
		}
	case looked:
		if m.err != nil && !t.mayReturn(m) {
			t.failed = m.err
			return t, tea.Quit
		}
		if m.err == nil {
			if t.lostAt.IsZero() { // a server that comes back may have left out sequence numbers
				m.snapshot.since(t.shown)
			}
			t.shown, t.lostAt = m.snapshot, time.Time{}
		}
		return t, t.next()
	}
	return t, nil
}

// mayReturn reports whether the server that a look has not found is still waited for.
func (t *topScreen) mayReturn(m looked) bool {
	var failure *copilot.Error
	if !errors.As(copilot.FromError(m.err), &failure) ||
		failure.Code != codes.Unavailable && failure.Code != codes.DeadlineExceeded {
		return false
	}
	if t.lostAt.IsZero() {
		t.lostAt = m.at
	}
	return m.at.Sub(t.lostAt) < t.patience
}

func (t *topScreen) View() tea.View {
	text := t.shown.render(t.width, t.height)
	if !t.lostAt.IsZero() {
		notice := fmt.Sprintf("No server answers since %s; trying again for up to %s. The state before:",
			t.lostAt.Format(time.TimeOnly), setting.Short(t.patience))
		_, rest, _ := strings.Cut(text, "\n")
		text = cut(notice, t.width) + "\n" + rest
	}
	v := tea.NewView(text)
	v.AltScreen = true
	return v
}
