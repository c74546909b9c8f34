package selection

import (
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
)

// CheckFilter rejects a filter whose labels are beyond the limits. field is the filter's path in the request.
func CheckFilter(f *bridgev1.SessionFilter, field string) error {
	return CheckLabels(f.GetLabels(), field+".labels")
}

// Fits reports whether a filter selects a session. A nil filter selects all.
func Fits(s *bridgev1.Session, f *bridgev1.SessionFilter) bool {
	fit := func(want, have string) bool { return want == "" || want == have }
	c := s.GetContext()
	return fit(f.GetWorkingDirectory(), c.GetWorkingDirectory()) && fit(f.GetGitRoot(), c.GetGitRoot()) &&
		fit(f.GetRepository(), c.GetRepository()) && fit(f.GetBranch(), c.GetBranch()) &&
		HasLabels(s.GetLabels(), f.GetLabels())
}
