"""Where the time of a test run goes, by file and by cause: `scripts/test --profile`."""
