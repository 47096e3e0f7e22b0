"""The benchmark behind scripts/int8-table: what int8 loses, for the README of the built-in model."""
