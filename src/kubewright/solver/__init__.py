"""First fit over pod classes: a Problem in, a Plan out."""
