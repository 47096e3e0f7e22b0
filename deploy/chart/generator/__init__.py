"""What of the Helm chart is made from something else: schema, defaults, table of values, copies of rules and dashboard."""
