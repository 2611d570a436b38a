"""The CRDs' validation rules, each as CEL for the API server and as Python for us."""
