"""KEDA's contract for external scalers, and the messages that grpcio-tools makes of it. Where it is from: README.md."""
