"""A whole cluster on one machine, of real processes: for the demo, tests and benchmarks."""
