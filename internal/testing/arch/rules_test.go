package arch

import (
	"fmt"
	"slices"
	"strings"
)

// verb says how a rule reads its list of imports.
type verb string

const (
	// never forbids the listed imports.
	never verb = "never"
	// within forbids every package of this module but the listed ones.
	within verb = "within"
)

// pattern names packages as the go command does: "a/b", "a/b/..." or "...".
type pattern string

// matches reports whether the pattern covers a package.
func (p pattern) matches(pkg string) bool {
	base, deep := strings.CutSuffix(string(p), "...")
	if !deep {
		return string(p) == pkg
	}
	base = strings.TrimSuffix(base, "/")
	return base == "" || pkg == base || strings.HasPrefix(pkg, base+"/")
}

// anyMatches reports whether one of the patterns covers a package.
func anyMatches(patterns []pattern, pkg string) bool {
	return slices.ContainsFunc(patterns, func(p pattern) bool { return p.matches(pkg) })
}

// rule is one row of the file.
type rule struct {
	line int
	// packages and their exceptions say whom the rule binds.
	packages, exceptPackages []pattern
	verb                     verb
	// imports and their exceptions say what it is about.
	imports, exceptImports []pattern
	reason                 string
}

// parseRules reads the rows of imports.txt; the head of that file explains them.
func parseRules(text string) ([]rule, error) {
	var rules []rule
	number := 0
	for line := range strings.Lines(text) {
		number++
		row, reason, _ := strings.Cut(strings.TrimSpace(line), "#")
		if strings.TrimSpace(row) == "" {
			continue
		}
		r, err := parseRule(strings.Fields(row))
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", number, err)
		}
		r.line, r.reason = number, strings.TrimSpace(reason)
		if r.reason == "" {
			return nil, fmt.Errorf("line %d: the rule has no reason", number)
		}
		rules = append(rules, r)
	}
	return rules, nil
}

// parseRule reads "packages… [except packages…] verb imports… [except imports…]".
func parseRule(words []string) (rule, error) {
	var r rule
	at := slices.IndexFunc(words, func(w string) bool { return verb(w) == never || verb(w) == within })
	if at < 1 {
		return rule{}, fmt.Errorf("want packages, then %q or %q, then imports, got %q", never, within, words)
	}
	r.verb = verb(words[at])
	r.packages, r.exceptPackages = splitExcept(words[:at])
	r.imports, r.exceptImports = splitExcept(words[at+1:])
	switch {
	case len(r.packages) == 0:
		return rule{}, fmt.Errorf("no packages before %q", "except")
	case r.verb == never && len(r.imports) == 0:
		return rule{}, fmt.Errorf("%q wants imports", never)
	case r.verb == within && len(r.exceptImports) > 0:
		return rule{}, fmt.Errorf("%q takes no exceptions", within)
	}
	return r, nil
}

// splitExcept parts a list of patterns from its exceptions.
func splitExcept(words []string) (patterns, exceptions []pattern) {
	into := &patterns
	for _, word := range words {
		if word == "except" {
			into = &exceptions
			continue
		}
		*into = append(*into, pattern(word))
	}
	return patterns, exceptions
}
