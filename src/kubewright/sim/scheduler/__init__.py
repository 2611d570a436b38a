"""A pretend kube-scheduler that judges by kube-scheduler's own rules, written without looking at the solver's.

It imports nothing of `kubewright.scheduling`, `catalogue`, `solver` or `packing`: what the solver promised is only true if this
judge, too, says so.
"""
