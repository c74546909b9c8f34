package translate

import "slices"

// forbidden returns the error for a member of the json_extra at offset, if the options forbid its name.
func (o *JSONOptions) forbidden(name []byte, offset int) *Error {
	if !slices.Contains(o.ForbidExtra, string(name)) {
		return nil
	}
	err := fail(KindForbiddenExtra, offset)
	err.Detail = string(name)
	return err
}

// forbiddenWithin looks for forbidden names among the members of an object or
// the strings of a list.
func (o *JSONOptions) forbiddenWithin(value []byte, offset int) (err *Error) {
	switch value[0] {
	case '{':
		for m := range Members(value) {
			if err = o.forbidden(m.Name, offset); err != nil {
				return err
			}
		}
	case '[':
		eachString(value, func(name []byte) bool {
			err = o.forbidden(name, offset)
			return err == nil
		})
	}
	return err
}
