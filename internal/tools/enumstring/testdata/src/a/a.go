package a

type reason int32

type kind uint8

type text string

type alias = reason

const one reason = 1

func conversions(r reason, k kind, a alias, rs []reason) []string {
	return []string{
		string(r),       // want "string conversion of a.reason"
		string(k),       // want "string conversion of a.kind"
		string(a),       // want "string conversion of a.alias"
		string(one),     // want "string conversion of a.reason"
		string(rs[0]),   // want "string conversion of a.reason"
		string(text(r)), // want "string conversion of a.reason"
	}
}

func permitted(r rune, b byte, bs []byte, t text) []string {
	return []string{string(r), string(b), string(bs), string(t), "a"}
}
