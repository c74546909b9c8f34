// Package protorules has the rules that every .proto file of this project keeps, so that generators of all languages
// make usable code of it: the options of a file, and names that clash with nothing.
package protorules

import (
	"path"
	"strconv"
	"strings"

	"google.golang.org/protobuf/types/descriptorpb"
)

// root names the project in namespaces. A hyphen is not allowed there.
const (
	javaRoot = "io.github.copilotgrpc"
	root     = "CopilotGrpc"
)

// Options returns the options of a file beside go_package, by its path below the proto root, such as
// copilot/bridge/v1/session.proto. Types get the namespace of their package in every language. The class that Java
// needs for a file has a name that no message has.
func Options(file string) *descriptorpb.FileOptions {
	words := strings.Split(path.Dir(file), "/")[1:] // without "copilot"
	var names []string
	for _, w := range words {
		names = append(names, pascal(w))
	}
	part := words[0]
	return &descriptorpb.FileOptions{
		JavaPackage:        new(javaRoot + "." + strings.Join(words, ".")),
		JavaMultipleFiles:  new(true),
		JavaOuterClassname: new(pascal(strings.TrimSuffix(path.Base(file), ".proto")) + "Proto"),
		CsharpNamespace:    new(root + "." + strings.Join(names, ".")),
		RubyPackage:        new(root + "::" + strings.Join(names, "::")),
		ObjcClassPrefix:    new("CG" + strings.ToUpper(part[:2])),
		SwiftPrefix:        new("Copilot" + strings.Join(names, "")),
		PhpNamespace:       new(root + `\` + strings.Join(names, `\`)),
	}
}

// Lines returns the options of a file as lines of its text.
func Lines(file string) []string {
	o := Options(file)
	return []string{
		line("java_package", o.GetJavaPackage()),
		"option java_multiple_files = true;",
		line("java_outer_classname", o.GetJavaOuterClassname()),
		line("csharp_namespace", o.GetCsharpNamespace()),
		line("ruby_package", o.GetRubyPackage()),
		line("objc_class_prefix", o.GetObjcClassPrefix()),
		line("swift_prefix", o.GetSwiftPrefix()),
		line("php_namespace", o.GetPhpNamespace()),
	}
}

func line(option, value string) string {
	return "option " + option + " = " + strconv.Quote(value) + ";"
}

// pascal joins the words of a lower_snake_case name: github_auth becomes GithubAuth.
func pascal(name string) string {
	var b strings.Builder
	for word := range strings.SplitSeq(name, "_") {
		b.WriteString(strings.ToUpper(word[:1]) + word[1:])
	}
	return b.String()
}
