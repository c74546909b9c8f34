package arch

import (
	"bufio"
	"bytes"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path"
	"regexp"
	"strconv"
	"strings"
)

// wordRules are the rules of words.txt; the head of that file explains them.
type wordRules struct {
	riddles []*regexp.Regexp
	areas   []*wordArea
}

// wordArea is a set of files with a common ceiling.
type wordArea struct {
	name             string
	ceiling          float64 // hits for 1,000 words
	ext              string
	patterns, except []pattern
	files, words     int
	hits             []Finding
}

// has reports whether the area covers a file.
func (a *wordArea) has(name string) bool {
	return strings.HasSuffix(name, a.ext) && anyMatches(a.patterns, name) && !anyMatches(a.except, name)
}

// rate returns the hits for 1,000 words.
func (a *wordArea) rate() float64 { return 1000 * float64(len(a.hits)) / float64(max(a.words, 1)) }

// CheckWords counts unclear expressions in prose. It returns one line for each area with its count, and the
// hits of the areas above their ceilings. A file belongs to the first area that covers it.
func CheckWords(tree fs.FS, rules string) (counts, findings []Finding, err error) {
	r, err := parseWordRules(rules)
	if err != nil {
		return nil, nil, err
	}
	err = walkFiles(tree, func(name string) error {
		for _, a := range r.areas {
			if a.has(name) {
				return r.count(tree, a, name)
			}
		}
		return nil
	})
	if err != nil {
		return nil, nil, err
	}
	for _, a := range r.areas {
		f := Finding{"words of " + a.name, fmt.Sprintf("%.2f for 1,000 words (%d in %d), ceiling %g",
			a.rate(), len(a.hits), a.words, a.ceiling)}
		counts = append(counts, f)
		switch {
		case a.files == 0:
			findings = append(findings, Finding{f.Where, "no file matches"})
		case a.rate() > a.ceiling:
			findings = append(findings, f)
			findings = append(findings, a.hits...)
		}
	}
	return counts, findings, nil
}

// count adds the words and hits of one file to an area.
func (r *wordRules) count(tree fs.FS, a *wordArea, name string) error {
	source, err := fs.ReadFile(tree, name)
	if err != nil {
		return err
	}
	blocks, err := proseOf(name, source)
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	a.files++
	for _, b := range blocks {
		text := strings.Join(strings.Fields(inlineCode.ReplaceAllString(b.text, "``")), " ")
		a.words += len(word.FindAllString(text, -1))
		for _, hit := range r.find(text) {
			a.hits = append(a.hits, Finding{fmt.Sprintf("%s:%d", name, b.line), fmt.Sprintf("%q", hit)})
		}
	}
	return nil
}

// find returns the unclear expressions of a text.
func (r *wordRules) find(text string) []string {
	var hits []string
	for _, riddle := range r.riddles {
		hits = append(hits, riddle.FindAllString(text, -1)...)
	}
	for _, s := range sentence.FindAllString(text, -1) {
		s = strings.TrimSpace(s)
		if whatOrWho.MatchString(s) && !strings.HasSuffix(s, "?") {
			hits = append(hits, s)
		}
	}
	return hits
}

// block is a piece of prose: a paragraph, a list item, or a cell of a table.
type block struct {
	line int
	text string
}

var (
	inlineCode  = regexp.MustCompile("`[^`]*`")
	word        = regexp.MustCompile(`[\pL']+`)
	sentence    = regexp.MustCompile(`[^.!?:]+[.!?:]*`)
	whatOrWho   = regexp.MustCompile(`^(?:What|Who)\b`)
	listItem    = regexp.MustCompile(`^\s*(?:[-*]|\d+\.) `)
	htmlComment = regexp.MustCompile(`<!--.*?-->`)
)

// proseOf returns the prose of a file: the whole text of Markdown without code, else the comments.
func proseOf(name string, source []byte) ([]block, error) {
	switch path.Ext(name) {
	case ".md":
		return markdown(source), nil
	case ".go":
		return goComments(name, source)
	}
	return lineComments(source), nil
}

// blocks collects lines into blocks.
type blocks struct{ all []block }

// add appends a line to the current block, or begins a new one.
func (b *blocks) add(number int, line string, begin bool) {
	if begin || len(b.all) == 0 {
		b.all = append(b.all, block{line: number})
	}
	last := &b.all[len(b.all)-1]
	last.text += line + "\n"
}

// markdown returns the prose of a page.
func markdown(source []byte) []block {
	var b blocks
	fenced, begin := false, true
	eachSourceLine(source, func(number int, line string) {
		line = htmlComment.ReplaceAllString(line, "")
		switch {
		case strings.HasPrefix(strings.TrimSpace(line), "```"):
			fenced, begin = !fenced, true
		case fenced:
		case strings.TrimSpace(line) == "":
			begin = true
		case strings.HasPrefix(line, "|"):
			for _, cell := range strings.Split(line, "|") {
				b.add(number, cell, true)
			}
			begin = true
		case strings.HasPrefix(line, "#"):
			b.add(number, strings.TrimLeft(line, "# "), true)
			begin = true
		default:
			item := listItem.FindString(line)
			b.add(number, line[len(item):], begin || item != "")
			begin = false
		}
	})
	return b.all
}

// goComments returns the comments of hand-written Go, a block for each paragraph.
func goComments(name string, source []byte) ([]block, error) {
	files := token.NewFileSet()
	file, err := parser.ParseFile(files, name, source, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil || ast.IsGenerated(file) {
		return nil, err
	}
	var b blocks
	for _, group := range file.Comments {
		b.paragraphs(files.Position(group.Pos()).Line, group.Text())
	}
	return b.all, nil
}

// lineComments returns the comments of files in which "//" begins a comment.
func lineComments(source []byte) []block {
	var b blocks
	first, text := 0, ""
	flush := func() {
		b.paragraphs(first, text)
		first, text = 0, ""
	}
	eachSourceLine(source, func(number int, line string) {
		comment, ok := strings.CutPrefix(strings.TrimSpace(line), "//")
		if !ok {
			flush()
			return
		}
		if first == 0 {
			first = number
		}
		text += comment + "\n"
	})
	flush()
	return b.all
}

// paragraphs adds the paragraphs and list items of a comment. Indented lines are code.
func (b *blocks) paragraphs(number int, text string) {
	begin := true
	for line := range strings.Lines(text) {
		item := listItem.FindString(line)
		switch {
		case strings.TrimSpace(line) == "":
			begin = true
		case item == "" && strings.HasPrefix(line, "\t"):
			begin = true
		default:
			b.add(number, line[len(item):], begin || item != "")
			begin = false
		}
		number++
	}
}

// eachSourceLine calls visit with each line, from 1.
func eachSourceLine(source []byte, visit func(number int, line string)) {
	lines := bufio.NewScanner(bytes.NewReader(source))
	lines.Buffer(nil, 1<<20)
	for number := 1; lines.Scan(); number++ {
		visit(number, lines.Text())
	}
}

// parseWordRules reads words.txt.
func parseWordRules(text string) (*wordRules, error) {
	r := &wordRules{}
	number := 0
	for line := range strings.Lines(text) {
		number++
		line, _, _ = strings.Cut(line, "#")
		words := strings.Fields(line)
		if len(words) == 0 {
			continue
		}
		if err := r.parse(words); err != nil {
			return nil, fmt.Errorf("line %d: %w", number, err)
		}
	}
	return r, nil
}

// parse reads one row.
func (r *wordRules) parse(words []string) error {
	switch {
	case words[0] == "riddle" && len(words) > 1:
		riddle, err := regexp.Compile(`(?i)\b(?:` + strings.Join(words[1:], " ") + `)\b`)
		if err != nil {
			return err
		}
		r.riddles = append(r.riddles, riddle)
		return nil
	case words[0] == "area" && len(words) > 4:
		ceiling, err := strconv.ParseFloat(words[2], 64)
		if err != nil {
			return err
		}
		a := &wordArea{name: words[1], ceiling: ceiling, ext: words[3]}
		a.patterns, a.except = splitExcept(words[4:])
		r.areas = append(r.areas, a)
		return nil
	}
	return fmt.Errorf(`want "riddle EXPRESSION" or "area NAME CEILING EXTENSION FILES…", got %q`, words)
}
