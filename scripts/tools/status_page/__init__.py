"""Screenshots of the status page, and a headless browser that script and tests share."""
