"""`enricher tail`: records as they appear. `command` follows the topic, `excerpts` chooses the text, `show` draws it."""
