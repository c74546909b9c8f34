// Package console serves the browser console: the built files of clients/console, embedded in the program.
//
// The files are built with `make console`; `.ci/client-console` checks that they match their sources. The package
// starts no goroutines, and its handler is safe for concurrent use.
package console

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"fmt"
	"io/fs"
	"mime"
	"net/http"
	"path"
	"strconv"
	"strings"
	"sync"
	"time"
)

//go:embed all:dist
var built embed.FS

// Policy is the content security policy of every page: no inline code, no other origins, no frames.
const Policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; " +
	"font-src 'self'; connect-src 'self'; manifest-src 'self'; worker-src 'self'; base-uri 'none'; " +
	"form-action 'self'; frame-ancestors 'none'"

const (
	// index is the page that shows every route of the console.
	index = "index.html"
	// hashed is the folder of files whose names change with their contents.
	hashed = "assets/"
	// compressMinBytes is the size from which files are compressed.
	compressMinBytes = 1 << 10
)

// Handler serves the files.
type Handler struct {
	files map[string]*file
}

// file is an embedded file.
type file struct {
	content     []byte
	contentType string
	etag        string
	cache       string
	// zipped returns the compressed content; nil if compression is not worthwhile.
	zipped func() []byte
}

// New returns a handler for GET and HEAD requests. Paths without an extension that are no file are routes of the
// console, and answered with its page.
func New() (*Handler, error) {
	dist, err := fs.Sub(built, "dist")
	if err != nil {
		return nil, fmt.Errorf("console: %w", err)
	}
	return newHandler(dist)
}

func newHandler(dist fs.FS) (*Handler, error) {
	h := &Handler{files: map[string]*file{}}
	err := fs.WalkDir(dist, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		content, err := fs.ReadFile(dist, name)
		if err != nil {
			return err
		}
		h.files[name] = newFile(name, content)
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("console: %w", err)
	}
	if h.files[index] == nil {
		return nil, fmt.Errorf("console: %s is missing; run make console", index)
	}
	return h, nil
}

func newFile(name string, content []byte) *file {
	sum := sha256.Sum256(content)
	f := &file{content: content, contentType: contentType(name), cache: "no-cache",
		etag: `"` + hex.EncodeToString(sum[:12]) + `"`}
	if strings.HasPrefix(name, hashed) {
		f.cache = "public, max-age=31536000, immutable"
	}
	f.zipped = sync.OnceValue(func() []byte { return compressed(f) })
	return f
}

// contentTypes are the types by extension. They do not depend on the machine's table.
var contentTypes = map[string]string{
	".html": "text/html; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".css": "text/css; charset=utf-8",
	".svg": "image/svg+xml", ".webmanifest": "application/manifest+json", ".txt": "text/plain; charset=utf-8",
}

func contentType(name string) string {
	extension := path.Ext(name)
	return cmp.Or(contentTypes[extension], mime.TypeByExtension(extension), "application/octet-stream")
}

func compressed(f *file) []byte {
	if len(f.content) < compressMinBytes || !compressible(f.contentType) {
		return nil
	}
	var b bytes.Buffer
	w, err := gzip.NewWriterLevel(&b, gzip.BestCompression)
	if err != nil {
		return nil
	}
	// Writes to a buffer do not fail.
	_, _ = w.Write(f.content)
	_ = w.Close()
	if b.Len() >= len(f.content) {
		return nil
	}
	return b.Bytes()
}

func compressible(contentType string) bool {
	return strings.HasPrefix(contentType, "text/") || strings.HasPrefix(contentType, "image/svg") ||
		strings.HasPrefix(contentType, "application/manifest")
}

// ServeHTTP implements http.Handler.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	header := w.Header()
	header.Set("Content-Security-Policy", Policy)
	header.Set("X-Content-Type-Options", "nosniff")
	header.Set("Referrer-Policy", "no-referrer")
	header.Set("Cross-Origin-Opener-Policy", "same-origin")
	header.Set("Cross-Origin-Resource-Policy", "same-origin")
	header.Set("Permissions-Policy", "camera=(), geolocation=(), microphone=()")
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		header.Set("Allow", "GET, HEAD")
		http.Error(w, "the console answers GET requests", http.StatusMethodNotAllowed)
		return
	}
	f := h.find(r.URL.Path)
	if f == nil {
		http.NotFound(w, r)
		return
	}
	f.serve(w, r)
}

// find returns the file of a path; nil if there is none.
func (h *Handler) find(urlPath string) *file {
	name := strings.TrimPrefix(path.Clean("/"+urlPath), "/")
	if f := h.files[name]; f != nil {
		return f
	}
	if path.Ext(name) != "" && !strings.HasPrefix(name, routes) || strings.HasPrefix(name, hashed) {
		return nil
	}
	return h.files[index]
}

// routes is the prefix of pages whose paths end with the id of a session, which may contain dots.
const routes = "sessions/"

func (f *file) serve(w http.ResponseWriter, r *http.Request) {
	header := w.Header()
	header.Set("Content-Type", f.contentType)
	header.Set("Cache-Control", f.cache)
	header.Set("ETag", f.etag)
	header.Add("Vary", "Accept-Encoding")
	content := f.content
	if acceptsGzip(r.Header.Get("Accept-Encoding")) {
		if zipped := f.zipped(); zipped != nil {
			content = zipped
			header.Set("Content-Encoding", "gzip")
		}
	}
	r.Header.Del("Range") // both forms of a file have the same tag, so that a part could be one of the other form
	http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(content))
}

// acceptsGzip reports whether an Accept-Encoding header has gzip with a quality other than 0.
func acceptsGzip(header string) bool {
	for coding := range strings.SplitSeq(header, ",") {
		name, parameters, _ := strings.Cut(strings.TrimSpace(coding), ";")
		if !strings.EqualFold(strings.TrimSpace(name), "gzip") {
			continue
		}
		_, quality, found := strings.Cut(strings.ReplaceAll(parameters, " ", ""), "q=")
		if !found {
			return true
		}
		q, err := strconv.ParseFloat(quality, 64)
		return err == nil && q > 0
	}
	return false
}
