"""The AWS provider: one module an AWS noun, boto3 behind one page of typed calls (`api`)."""
