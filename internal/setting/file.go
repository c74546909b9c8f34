package setting

import (
	"errors"
	"fmt"
	"strings"

	"github.com/agnivade/levenshtein"
	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
)

// entry is what a file says of a setting.
type entry struct {
	texts []string
	where string
}

// parseFile reads a file. A key that no setting has is an error: what is misspelt would be a
// setting that is not made.
func parseFile(table Table, path string, text []byte) (map[string]entry, error) {
	if text == nil {
		return nil, nil
	}
	parsed, err := parser.ParseBytes(text, 0)
	if wrong, ok := errors.AsType[yaml.Error](err); ok { // without the source, which may have secrets
		return nil, fmt.Errorf("%s:%d: %s", path, wrong.GetToken().Position.Line, wrong.GetMessage())
	}
	if err != nil {
		return nil, fmt.Errorf("%s: it is not YAML", path)
	}
	entries := map[string]entry{}
	if len(parsed.Docs) == 0 || parsed.Docs[0].Body == nil || parsed.Docs[0].Body.Type() == ast.CommentType {
		return entries, nil
	}
	body, ok := parsed.Docs[0].Body.(*ast.MappingNode)
	if !ok || len(parsed.Docs) > 1 {
		return nil, fmt.Errorf("%s: it is not one list of KEY: VALUE", path)
	}
	var errs []error
	for _, pair := range body.Values {
		key := pair.Key.String()
		where := fmt.Sprintf("%s:%d", path, pair.Key.GetToken().Position.Line)
		s, known := table.Lookup(key)
		switch {
		case !known:
			errs = append(errs, fmt.Errorf("%s: there is no setting %q%s", where, key, didYouMean(table, key)))
			continue
		case entries[key].where != "":
			errs = append(errs, fmt.Errorf("%s: %s is there already, at %s", where, key, entries[key].where))
			continue
		}
		texts, err := textsOf(s, pair.Value)
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %s: %w", where, key, err))
			continue
		}
		entries[key] = entry{texts, where}
	}
	return entries, errors.Join(errs...)
}

// textsOf gives a node of a file the form that flags have.
func textsOf(s Row, node ast.Node) ([]string, error) {
	switch n := node.(type) {
	case *ast.SequenceNode:
		if !s.list() {
			return nil, errors.New("it takes no list")
		}
		texts := []string{}
		for _, value := range n.Values {
			text, err := scalar(value)
			if err != nil {
				return nil, err
			}
			texts = append(texts, text)
		}
		return texts, nil
	case *ast.MappingNode:
		if !s.pairs() {
			return nil, errors.New("it takes no names with values")
		}
		texts := []string{}
		for _, pair := range n.Values {
			text, err := scalar(pair.Value)
			if err != nil {
				return nil, err
			}
			texts = append(texts, pair.Key.String()+"="+text)
		}
		return texts, nil
	}
	text, err := scalar(node)
	switch {
	case err != nil:
		return nil, err
	case s.pairs():
		return nil, errors.New("it takes names with values")
	case s.list():
		return s.fields(text), nil
	}
	return []string{text}, nil
}

// scalar is the text of a value that has no parts.
func scalar(node ast.Node) (string, error) {
	switch n := node.(type) {
	case *ast.StringNode:
		return n.Value, nil
	case *ast.LiteralNode:
		return n.Value.Value, nil
	case *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode:
		return n.GetToken().Value, nil // as it was written
	case *ast.NullNode:
		return "", errors.New(`it has no value; "" is the empty one`)
	}
	return "", errors.New("it takes a plain value")
}

// didYouMean names the key that is most like one that there is not.
func didYouMean(table Table, key string) string {
	var keys []string
	for _, s := range table.All() {
		keys = append(keys, s.Key)
	}
	if near := Nearest(strings.ToLower(strings.ReplaceAll(key, "-", "_")), keys); near != "" {
		return fmt.Sprintf("; did you mean %q?", near)
	}
	return ""
}

// Nearest returns the word that a misspelt one may have been, "" if none is like it.
func Nearest(word string, words []string) string { return nearest(word, words, max(2, len(word)/3)) }

// Misspelt returns the word that differs by a slip or two from one that may also be right, "" if none does.
func Misspelt(word string, words []string) string { return nearest(word, words, 2) }

// nearest returns the word that is most like one, at most so many changed letters away.
func nearest(word string, words []string, most int) string {
	best, least := "", most+1
	for _, w := range words {
		if d := levenshtein.ComputeDistance(word, w); d < least {
			best, least = w, d
		}
	}
	return best
}
