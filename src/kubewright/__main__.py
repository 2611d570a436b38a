"""`python -m kubewright`."""

from kubewright.cli.main import main

main()
