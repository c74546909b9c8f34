package chat

import (
	"context"
	"errors"
	"io"

	tea "charm.land/bubbletea/v2"
)

// Run shows a conversation on a terminal until the person leaves, ctx ends or the server stays away. The terminal is then
// as it was before. If the server stays away, what it has not received of the person's text is printed.
func Run(ctx context.Context, l *Link, in io.Reader, out io.Writer, environ []string) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // of the effects that are under way
	past := l.inputs.read()
	screen := Screen{
		ID: l.SessionID(), Conversation: Conversation{Attached: l.options.Files}, history: history{all: past, at: len(past)},
	}
	shown := &program{screen: screen, link: l, ctx: ctx}
	p := tea.NewProgram(shown,
		tea.WithInput(in), tea.WithOutput(out), tea.WithEnvironment(environ), tea.WithoutSignalHandler())
	defer context.AfterFunc(ctx, p.Quit)()
	_, err := p.Run()
	if shown.lost != nil {
		_, printErr := io.WriteString(out, shown.screen.unsentText())
		err = errors.Join(err, printErr)
	}
	return errors.Join(err, shown.lost)
}

// program is the Screen as Bubble Tea wants it.
type program struct {
	screen Screen
	link   *Link
	ctx    context.Context
	// lost is why no server answers any more.
	lost error
}

// changed says that the link has something new.
type changed struct{}

func (p *program) Init() tea.Cmd { return p.listen }

func (p *program) listen() tea.Msg {
	select {
	case <-p.link.Changed():
		return changed{}
	case <-p.ctx.Done():
		return nil
	}
}

func (p *program) Update(msg tea.Msg) (tea.Model, tea.Cmd) {
	switch m := msg.(type) {
	case tea.WindowSizeMsg:
		p.screen.Resize(m.Width, m.Height)
	case tea.KeyPressMsg:
		return p, p.do(p.screen.Key(m.Keystroke(), m.Text))
	case tea.PasteMsg:
		p.screen.Paste(m.Content)
	case changed:
		u := p.link.Latest()
		if u.Lost != nil {
			p.lost = u.Lost
			return p, tea.Quit
		}
		p.screen.Take(u)
		return p, p.listen
	case Result:
		p.screen.Finished(m)
	}
	return p, nil
}

// do carries out effects beside the screen.
func (p *program) do(effects []Effect) tea.Cmd {
	var cmds []tea.Cmd
	for _, e := range effects {
		if _, leaving := e.(Leave); leaving {
			return tea.Quit
		}
		cmds = append(cmds, func() tea.Msg { return p.link.Do(p.ctx, e) })
	}
	return tea.Batch(cmds...)
}

func (p *program) View() tea.View {
	content, x, y := p.screen.Render()
	v := tea.NewView(content)
	v.AltScreen = true
	v.Cursor = tea.NewCursor(x, y)
	return v
}
