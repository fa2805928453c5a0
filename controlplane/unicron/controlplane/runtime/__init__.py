"""The imperative shell: logs, servers, messages, clocks and processes around the pure core."""
