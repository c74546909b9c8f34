package console

import (
	"compress/gzip"
	"io"
	"net/http"
	"net/http/httptest"
	"path"
	"regexp"
	"strings"
	"testing"
	"testing/fstest"
)

// testDist is a small console.
func testDist() fstest.MapFS {
	return fstest.MapFS{
		"index.html":         {Data: []byte("<!doctype html><title>console</title>")},
		"assets/app-1a2b.js": {Data: []byte(strings.Repeat("let a = 1;\n", 500))},
		"icon.svg":           {Data: []byte("<svg xmlns='http://www.w3.org/2000/svg'/>")},
	}
}

func get(t *testing.T, h http.Handler, path string, header http.Header) *http.Response {
	t.Helper()
	r := httptest.NewRequest(http.MethodGet, path, nil)
	r.Header = header
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w.Result()
}

func TestRoutesAnswerWithThePage(t *testing.T) {
	t.Parallel()
	h, err := newHandler(testDist())
	if err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]int{
		"/": 200, "/inbox": 200, "/sessions/a.b.c": 200, "/sessions/x/timeline": 200, "/icon.svg": 200,
		"/assets/app-1a2b.js": 200, "/favicon.ico": 404, "/assets/old.js": 404, "/assets/old": 404,
		"/../console.go": 404, "/.env": 404,
	} {
		if got := get(t, h, path, http.Header{}).StatusCode; got != want {
			t.Errorf("%s: status %d, want %d", path, got, want)
		}
	}
}

func TestHeaders(t *testing.T) {
	t.Parallel()
	h, err := newHandler(testDist())
	if err != nil {
		t.Fatal(err)
	}
	page := get(t, h, "/usage", http.Header{})
	for name, want := range map[string]string{
		"Content-Security-Policy": Policy, "X-Content-Type-Options": "nosniff", "Cache-Control": "no-cache",
		"Content-Type": "text/html; charset=utf-8", "Referrer-Policy": "no-referrer", "Vary": "Accept-Encoding",
	} {
		if got := page.Header.Get(name); got != want {
			t.Errorf("page: %s is %q, want %q", name, got, want)
		}
	}
	script := get(t, h, "/assets/app-1a2b.js", http.Header{})
	if got := script.Header.Get("Cache-Control"); got != "public, max-age=31536000, immutable" {
		t.Errorf("script: Cache-Control is %q", got)
	}
	again := get(t, h, "/usage", http.Header{"If-None-Match": {`"x", W/` + page.Header.Get("ETag")}})
	if again.StatusCode != http.StatusNotModified {
		t.Errorf("a known page has status %d, want 304", again.StatusCode)
	}
}

func TestCompression(t *testing.T) {
	t.Parallel()
	h, err := newHandler(testDist())
	if err != nil {
		t.Fatal(err)
	}
	for accepted, want := range map[string]string{
		"": "", "gzip": "gzip", "br, gzip;q=0.5": "gzip", "gzip;q=0": "", "gzip; q=0.0, br": "", "GZIP": "gzip",
	} {
		reply := get(t, h, "/assets/app-1a2b.js", http.Header{"Accept-Encoding": {accepted}})
		if got := reply.Header.Get("Content-Encoding"); got != want {
			t.Errorf("Accept-Encoding %q: Content-Encoding %q, want %q", accepted, got, want)
		}
		content := io.Reader(reply.Body)
		if want == "gzip" {
			if content, err = gzip.NewReader(reply.Body); err != nil {
				t.Fatal(err)
			}
		}
		text, err := io.ReadAll(content)
		if err != nil || !strings.HasPrefix(string(text), "let a = 1;") {
			t.Errorf("Accept-Encoding %q: content %.20q, error %v", accepted, text, err)
		}
	}
	small := get(t, h, "/icon.svg", http.Header{"Accept-Encoding": {"gzip"}})
	if small.Header.Get("Content-Encoding") != "" {
		t.Error("a small file is compressed")
	}
}

func TestOtherMethodsAreRefused(t *testing.T) {
	t.Parallel()
	h, err := newHandler(testDist())
	if err != nil {
		t.Fatal(err)
	}
	for _, method := range []string{http.MethodPost, http.MethodPut, http.MethodOptions} {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(method, "/", nil))
		if w.Code != http.StatusMethodNotAllowed {
			t.Errorf("%s: status %d, want 405", method, w.Code)
		}
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodHead, "/", nil))
	if w.Code != http.StatusOK || w.Body.Len() != 0 || w.Header().Get("Content-Length") == "" {
		t.Errorf("HEAD: status %d, %d bytes, Content-Length %q", w.Code, w.Body.Len(), w.Header().Get("Content-Length"))
	}
}

func TestMissingPage(t *testing.T) {
	t.Parallel()
	if _, err := newHandler(fstest.MapFS{"a.js": {}}); err == nil {
		t.Error("a console without a page was accepted")
	}
}

// TestBuiltFiles checks that the policy permits the embedded page, and that nothing in it leads to another origin.
func TestBuiltFiles(t *testing.T) {
	t.Parallel()
	h, err := New()
	if err != nil {
		t.Fatal(err)
	}
	page := string(h.files[index].content)
	forbidden := map[string]string{
		"an inline script": `<script(>|[^>]*>[^<]+)`, "an inline style": `<style|\sstyle=`,
		"a handler attribute": `\son\w+=`, "another origin": `(src|href)="(https?:)?//`,
	}
	for what, pattern := range forbidden {
		if found := regexp.MustCompile(pattern).FindString(page); found != "" {
			t.Errorf("the page has %s: %q", what, found)
		}
	}
	if !regexp.MustCompile(`<script type="module"[^>]* src="/assets/[^"]+\.js"`).MatchString(page) {
		t.Error("the page loads no script")
	}
	for _, asset := range regexp.MustCompile(`(?:src|href)="/([^"]+)"`).FindAllStringSubmatch(page, -1) {
		if h.files[asset[1]] == nil {
			t.Errorf("the page names %s, which is not embedded", asset[1])
		}
	}
}

// TestFirstViewIsSmall bounds what a browser loads for the first page, compressed.
func TestFirstViewIsSmall(t *testing.T) {
	t.Parallel()
	h, err := New()
	if err != nil {
		t.Fatal(err)
	}
	for name := range h.files {
		if strings.HasSuffix(name, ".map") {
			t.Errorf("%s is embedded", name)
		}
	}
	named := regexp.MustCompile(`(?:src|href)="/([^"]+)"`)
	imported := regexp.MustCompile(`(?:from|import)"\./([^"]+)"`) // import("…") loads other pages later
	const limit = 300 << 10
	total, seen := 0, map[string]bool{}
	for next := []string{"index.html"}; len(next) > 0; {
		name := next[0]
		next = next[1:]
		f := h.files[name]
		if seen[name] || f == nil {
			continue
		}
		seen[name] = true
		size := len(f.content)
		if zipped := f.zipped(); zipped != nil {
			size = len(zipped)
		}
		total += size
		for _, found := range named.FindAllStringSubmatch(string(f.content), -1) {
			next = append(next, found[1])
		}
		for _, found := range imported.FindAllStringSubmatch(string(f.content), -1) {
			next = append(next, path.Join(path.Dir(name), found[1]))
		}
	}
	if total > limit || len(seen) < 4 || len(seen) == len(h.files) {
		t.Errorf("the first view is %d bytes compressed in %d files, the limit is %d", total, len(seen), limit)
	}
	t.Logf("the first view is %d bytes compressed in %d of %d files", total, len(seen), len(h.files))
}
