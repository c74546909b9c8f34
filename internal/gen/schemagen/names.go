package schemagen

import (
	"encoding/json"
	"strings"
	"unicode"
)

// brands are words whose inner capitals are no word boundaries.
var brands = strings.NewReplacer("GitHub", "Github", "gitHub", "github", "OAuth", "Oauth", "oAuth", "oauth")

// snake turns a JSON name into a lower_snake_case proto name.
func snake(s string) string { return splitWords(brands.Replace(s)) }

// enumPrefix is the prefix that the linter wants before every value of an enum:
// here brand names are split like any other word.
func enumPrefix(name string) string { return strings.ToUpper(splitWords(name)) }

// splitWords puts an underscore before every capital that starts a word (one
// after a small letter, or before one) and replaces what is no letter or digit.
func splitWords(s string) string {
	var b strings.Builder
	rs := []rune(s)
	under := true // no underscore at the start
	for i, c := range rs {
		if !isAlnum(c) {
			if !under {
				b.WriteByte('_')
				under = true
			}
			continue
		}
		if unicode.IsUpper(c) && !under {
			if i+1 < len(rs) && unicode.IsLower(rs[i+1]) || unicode.IsLower(rs[i-1]) {
				b.WriteByte('_')
			}
		}
		b.WriteRune(unicode.ToLower(c))
		under = false
	}
	return strings.TrimRight(b.String(), "_")
}

func isAlnum(c rune) bool {
	return c < unicode.MaxASCII && (unicode.IsLetter(c) || unicode.IsDigit(c))
}

// pascal turns a JSON name into a PascalCase one, keeping inner capitals.
func pascal(s string) string {
	var b strings.Builder
	up := true
	for _, c := range s {
		if !isAlnum(c) {
			up = true
			continue
		}
		if up {
			c = unicode.ToUpper(c)
		}
		up = false
		b.WriteRune(c)
	}
	return b.String()
}

// lowerCamel is the JSON name that protobuf gives a field by default.
func lowerCamel(field string) string {
	var b strings.Builder
	up := false
	for _, c := range field {
		if c == '_' {
			up = true
			continue
		}
		if up {
			c = unicode.ToUpper(c)
		}
		up = false
		b.WriteRune(c)
	}
	return b.String()
}

// fieldName is the proto name of a JSON member.
func fieldName(jsonName string) string {
	n := snake(jsonName)
	switch {
	case n == "":
		n = "value"
	case unicode.IsDigit(rune(n[0])):
		n = "v" + n
	}
	switch n {
	case "descriptor", "json_extra", "unrecognized":
		n += "_"
	}
	return n
}

func unquote(text string) string {
	var s string
	if json.Unmarshal([]byte(text), &s) != nil {
		return text
	}
	return s
}

func quote(s string) string {
	b, err := json.Marshal(s)
	if err != nil {
		panic(err) // a string can always be marshalled
	}
	return string(b)
}
