package cli

import (
	"strings"
	"testing"
)

func TestSessionsManaged(t *testing.T) {
	t.Parallel()
	to := " --target " + server(t)
	for _, step := range []struct {
		args string
		want result
	}{
		{"create x" + to, result{exitUsage, "", `unexpected argument "x"`}},
		{"create --id a/b" + to, result{exitFailed, "", `InvalidArgument: session id "a/b"`}},
		{"create --id one -o json" + to, result{exitOK, `"sessionId": "one"`, ""}},
		{"create --id one" + to, result{exitFailed, "", "AlreadyExists"}},
		{"create --id=-two" + to, result{exitOK, "-two\n", ""}},
		{"show" + to + " -- -two", result{exitOK, "id:          ", ""}},
		{"send one" + to, result{exitUsage, "", "want PROMPT"}},
		{"send one hi there" + to, result{exitUsage, "", `unexpected argument "there"`}},
		{"send one hi" + to, result{exitOK, "\n", ""}},
		{"send one -" + to, result{exitUsage, "", "the prompt is empty"}},
		{"send oone hi" + to, result{exitFailed, "", `Did you mean the session "one"?`}},
		{"abort one" + to, result{exitOK, "turn", ""}},
		{"abort" + to, result{exitUsage, "", "want SESSION"}},
		{"share one acme --access own" + to, result{exitUsage, "", "want one of observe, participate"}},
		{"share one --remove" + to, result{exitUsage, "", "want TENANT"}},
		{"share one" + to, result{exitOK, "TENANT  ACCESS  STATE  NAME\n", ""}},
		{"share one acme --access participate" + to, result{exitOK, "acme    participate  offered  host/one\n", ""}},
		{"show one" + to, result{exitOK, "shared with: acme (participate, offered)\n", ""}},
		{"share one acme --remove" + to, result{exitOK, "TENANT  ACCESS  STATE  NAME\n", ""}},
		{"disconnect" + to, result{exitUsage, "", "want SESSION"}},
		{"disconnect one none" + to, result{exitFailed, "disconnected one\n", "NotFound"}},
		{"resume one" + to, result{exitOK, "one\n", ""}},
		{"delete none one" + to + " -- -two", result{exitFailed, "deleted one\ndeleted -two\n", "NotFound"}},
		{"delete one" + to, result{exitFailed, "", "NotFound"}},
	} {
		expect(t, nil, "sessions "+step.args, step.want)
	}
	r := run(t, nil, "from stdin", strings.Fields("sessions create --id three"+to)...)
	if r = run(t, nil, "from stdin", strings.Fields("sessions send three -"+to)...); r.code != exitOK {
		t.Errorf("a prompt on stdin: %+v", r)
	}
}
