//go:build programs

// Package programs names the program built from this module, so that go mod tidy keeps what it needs.
// The build tag is never set.
package programs

import _ "sigs.k8s.io/kwok/cmd/kwok"
