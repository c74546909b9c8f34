package offlinemodel

import (
	"cmp"
	"fmt"
)

// defaultChunkSize is the number of characters in a delta.
const defaultChunkSize = 24

// program is a validated script, ready to answer. Its rules count how often
// they were used; the scope's lock guards that.
type program struct {
	script *Script
	rules  []*compiledRule
	last   *compiledRule // the default, or nil
}

// compiledRule is a rule with its expressions parsed.
type compiledRule struct {
	rule  *Rule
	label string
	when  *condition
	used  int
}

// compile validates a script and prepares it. The script is not changed and
// must not be changed afterwards.
func compile(script *Script) (*program, error) {
	if script == nil {
		return nil, fmt.Errorf("offline model: no script")
	}
	if err := script.validate(); err != nil {
		return nil, fmt.Errorf("offline model script: %w", err)
	}
	p := &program{script: script, rules: compileRules(script.Rules)}
	if script.Default != nil {
		p.last = compileRule(script.Default, "default")
	}
	return p, nil
}

func compileRules(rules []Rule) []*compiledRule {
	compiled := make([]*compiledRule, len(rules))
	for i := range rules {
		compiled[i] = compileRule(&rules[i], fmt.Sprintf("rule %d", i+1))
	}
	return compiled
}

// compileRule cannot fail: the rule has been validated.
func compileRule(rule *Rule, place string) *compiledRule {
	return &compiledRule{rule: rule, label: cmp.Or(rule.Name, place), when: compileCondition(&rule.When)}
}

// pick finds the rule that answers a request and counts its use.
func (p *program) pick(r *Request) (*compiledRule, *values) {
	for _, rule := range p.rules {
		if rule.rule.Times > 0 && rule.used >= rule.rule.Times {
			continue
		}
		if found, ok := rule.when.match(r); ok {
			rule.used++
			return rule, found
		}
	}
	if p.last != nil {
		return p.last, &values{request: r, n: 1}
	}
	return nil, nil
}
