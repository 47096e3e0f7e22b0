"""The gate that a reduced precision passes before it may serve: fp32 against the variant, on labelled text.

A room of small files: `gold` reads the labelled text, `runs` sends it through the real pipeline, `measure` compares two
runs, `verdict` says what the figures mean, `check` does all of it, `report` is what is kept, `page` shows it.
"""
