package schemagen

import "fmt"

// Pins are the sha256 sums of the schema files of every version that may be
// generated from, in the order of SchemaFiles. The files themselves are not ours
// to publish.
var Pins = []Pin{
	{"1.0.81", [2]string{
		"9a479b80adc06bac35f3347f7b12552e07809ba76d5eecdb265c9592e5231c61",
		"24c7f581ec307f8bf0ddd9267ebb45e36b73b286dc8c713c37464a9be8bb5c4f",
	}},
	{"1.0.82", [2]string{
		"0945455e48c13783bf8c27f4e8e82793b45975b1af2232e399ca63e45ad0ef60",
		"aab192cd2f84f3e87edec8fc436b015bd3bc3fa456388926b4fff59bcbc23ebb",
	}},
	{"1.0.92", [2]string{
		"b49506903d2663f2b38c5d194c622df48ca92e1b3f69538561fb4a8c7a5fbf0a",
		"f622f137ed07ce9eedfac59000c97ade08ca66657aafeac22a75d8b361d968b2",
	}},
	{"1.0.102", [2]string{
		"3ea4787901ebed80f00e2c5271769049bc93ebfbbd6b6635c8c168ca7aad4922",
		"2d2ac2bea9ede2d02c1e51f4595d3e2c8cf81bfb2b00cb13d74fea83014ffa5d",
	}},
}

// Pin is what the schemas of one version must be.
type Pin struct {
	Version string
	SHA256  [2]string
}

// checkPin compares the sums of a version's schema files with the pinned ones.
func checkPin(version string, sums [2]string) error {
	for _, p := range Pins {
		if p.Version != version {
			continue
		}
		for i, file := range SchemaFiles {
			if sums[i] != p.SHA256[i] {
				return fmt.Errorf("%s of %s: sha256 is %s, pinned is %s", file, version, sums[i], p.SHA256[i])
			}
		}
		return nil
	}
	return fmt.Errorf("version %q is not pinned: its schemas have sha256 %s and %s", version, sums[0], sums[1])
}
