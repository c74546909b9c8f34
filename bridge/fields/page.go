package fields

import (
	"cmp"
	"strconv"

	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
)

// The sizes of pages, in elements.
const (
	DefaultPageSize = 100
	MaxPageSize     = 1000
)

// PageSize checks page_size; 0 means that the caller has not set it.
func PageSize(size int32) (int, error) {
	if size < 0 || size > MaxPageSize {
		return 0, fault.New(fault.InvalidField, "page_size is %d, not between 1 and %d", size, MaxPageSize).WithField("page_size")
	}
	return int(size), nil
}

// Page reads which page of a list a request asks for.
func Page(r interface {
	GetPageSize() int32
	GetPageToken() string
}) (size, begin int, err error) {
	if size, err = PageSize(r.GetPageSize()); err != nil {
		return 0, 0, err
	}
	if token := r.GetPageToken(); token != "" {
		begin, err = strconv.Atoi(token)
		if err != nil || begin < 0 || strconv.Itoa(begin) != token {
			return 0, 0, fault.New(fault.InvalidField, "not a page token of this list").WithField("page_token")
		}
	}
	return cmp.Or(size, DefaultPageSize), begin, nil
}

// Cut returns a page of a list, and the token of the next page.
func Cut[T any](list []T, begin, size int) (page []T, next string) {
	begin = min(begin, len(list))
	end := min(begin+size, len(list))
	if end < len(list) {
		next = strconv.Itoa(end)
	}
	return list[begin:end], next
}
