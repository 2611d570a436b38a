//go:build programs

// Package programs names what is used of this module, so that go mod tidy keeps it. The build tag is never set.
package programs

import _ "github.com/aws/karpenter-provider-aws/pkg/apis"
