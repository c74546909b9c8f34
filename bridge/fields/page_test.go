package fields

import (
	"slices"
	"testing"

	"pgregory.net/rapid"

	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
)

// For any page size, the pages together are the list.
func TestPagesAreTheList(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		list := rapid.SliceOf(rapid.Int()).Draw(t, "list")
		r := &bridgev1.ListSessionsRequest{PageSize: rapid.Int32Range(0, MaxPageSize).Draw(t, "size")}
		var got []int
		for {
			size, begin, err := Page(r)
			if err != nil {
				t.Fatal(err)
			}
			page, next := Cut(list, begin, size)
			got = append(got, page...)
			if len(page) > size || next != "" && len(page) < size {
				t.Fatalf("a page of %d has %d elements, and the next token %q", size, len(page), next)
			}
			if r.PageToken = next; next == "" {
				break
			}
		}
		if !slices.Equal(got, list) {
			t.Fatalf("the pages are %v, the list is %v", got, list)
		}
	})
}

func TestPageErrors(t *testing.T) {
	t.Parallel()
	for field, r := range map[string]*bridgev1.ListSessionsRequest{
		"page_size":  {PageSize: MaxPageSize + 1},
		"page_token": {PageToken: "x"},
	} {
		if _, _, err := Page(r); fieldOf(err) != field {
			t.Errorf("%v: %v, want an error about %s", r, err, field)
		}
	}
	if _, _, err := Page(&bridgev1.ListSessionsRequest{PageSize: -1}); fieldOf(err) != "page_size" {
		t.Errorf("a negative size: %v", err)
	}
	for _, token := range []string{
		"-1", "+1", " 1", "1 ", "01", "1x", "0x1", "1_0", "1.0", "\u0661", "9223372036854775808", "-0", "\n",
	} {
		if _, _, err := Page(&bridgev1.ListSessionsRequest{PageToken: token}); fieldOf(err) != "page_token" {
			t.Errorf("the token %q: %v", token, err)
		}
	}
}

func fieldOf(err error) string {
	f, _ := AsFault(err)
	if f == nil {
		return ""
	}
	return f.Field
}
